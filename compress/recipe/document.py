"""YAML text to plain data with the position of every key. A small, safe part of YAML 1.1: no anchors, no tags.

Source: https://yaml.org/spec/1.1/, as PyYAML resolves it. Scalars whose reading surprises people (dates, base 60,
octal, `1e-4` as text) are refused rather than converted.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from compress.recipe.places import Mark, Problem
from compress.recipe.syntax import find_syntax_problems, mark_of
from compress.recipe.words import KeyPath, shorten

_TAG = "tag:yaml.org,2002:"
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_EXPONENT = re.compile(r"([-+]?\d+)(\.\d*)?[eE]([-+]?)(\d+)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_KEY_READINGS = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "nothing", "timestamp": "a date"}


@dataclass(frozen=True, kw_only=True)
class Document:
    """data: dicts, lists, text, numbers, booleans and None; readable: False where the syntax itself is broken."""

    data: Any
    marks: dict[KeyPath, Mark]
    problems: tuple[Problem, ...]
    readable: bool = True


def read_document(text: str) -> Document:
    """Never raises on bad text: what is wrong with it stands in `problems`, and `data` leaves it out."""
    problems = find_syntax_problems(text)
    if problems:
        return Document(data=None, marks={}, problems=problems, readable=False)
    root = yaml.SafeLoader(text).get_single_node()
    walk = _Walk()
    data = None if root is None else walk.value(root, ())
    return Document(data=data, marks=walk.marks, problems=tuple(walk.problems))


@dataclass(frozen=True, kw_only=True)
class _Walk:
    marks: dict[KeyPath, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.marks.setdefault(path, mark_of(node.start_mark))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node, path)
            if key is None:
                continue
            mark, here = mark_of(key_node.start_mark), (*path, key)
            if key in result:
                line, column = self.marks[here]
                fact = f"duplicate key, first given at {line}:{column}"
                self.problems.append(Problem(path=here, fact=fact, remedy="Remove one", mark=mark))
                continue
            self.marks[here] = mark
            result[key] = self.value(value_node, here)
        return result

    def key(self, node: yaml.Node, path: KeyPath) -> str | None:
        """The key's text, or None and a problem."""
        reading = node.tag.removeprefix(_TAG)
        if not isinstance(node, yaml.ScalarNode):
            return self.refuse_key(node, path, "a key must be text", "Name it")
        if reading == "merge":
            return self.refuse_key(node, path, "no merge keys (<<) in a recipe", "Write the values out")
        if reading in _KEY_READINGS:
            written = shorten(node.value) or "(empty)"
            fact = f"the key {written} is {_KEY_READINGS[reading]} in YAML, and keys must be text"
            return self.refuse_key(node, path, fact, "Put it in quotes")
        if _SURROGATE.search(node.value):
            return self.refuse_key(node, path, "the key holds half of a surrogate pair", "Write the character itself")
        return str(node.value)

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        reading = node.tag.removeprefix(_TAG)
        if reading == "null":
            return None
        if reading == "bool":
            return yaml.SafeLoader.bool_values[node.value.lower()]
        if reading in ("int", "float", "timestamp"):
            return self.number(node.value, path, reading)
        return self.text(node, path)

    def number(self, written: str, path: KeyPath, reading: str) -> int | float | None:
        """The number, or None and a problem."""
        if reading == "timestamp":
            return self.refuse(path, f"YAML reads {shorten(written)} as a date", "Put it in quotes")
        if ":" in written or (reading == "int" and not _DECIMAL.fullmatch(written)):
            return self.refuse(path, f"{shorten(written)} is not a plain decimal number", _DECIMAL_OR_QUOTES)
        if written.lower().lstrip("+-") in (".inf", ".nan"):
            return self.refuse(path, f"{written} is not a finite number", "Write a finite number")
        number = float(written.replace("_", ""))
        if math.isinf(number) or (reading == "int" and abs(number) >= 2**63):
            return self.refuse(path, f"{shorten(written)} is too large a number", "Write a smaller one")
        return int(written.replace("_", "")) if reading == "int" else number

    def text(self, node: yaml.ScalarNode, path: KeyPath) -> str | None:
        if _SURROGATE.search(node.value):
            return self.refuse(path, "the text holds half of a surrogate pair", "Write the character itself")
        match = None if node.style else _EXPONENT.fullmatch(node.value)
        if match:
            whole, fraction, sign, exponent = match.groups()
            plain = shorten(f"{whole}{fraction or '.0'}e{sign or '+'}{exponent}")
            fact = f"YAML reads {shorten(node.value)} as text, not as a number"
            return self.refuse(path, fact, f"Write {plain}, or quotes around it if text is meant")
        return str(node.value)

    def refuse(self, path: KeyPath, fact: str, remedy: str) -> Any:
        """Note the problem; the value reads as None."""
        self.problems.append(Problem(path=path, fact=fact, remedy=remedy))
        return None

    def refuse_key(self, node: yaml.Node, path: KeyPath, fact: str, remedy: str) -> Any:
        self.problems.append(Problem(path=path, fact=fact, remedy=remedy, mark=mark_of(node.start_mark)))
        return None


_DECIMAL_OR_QUOTES = "Write it in decimal, without leading zeros, or in quotes if it is text"
