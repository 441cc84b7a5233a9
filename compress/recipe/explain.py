"""The schema's complaints in the user's words. One literal table: pydantic's error type to a fact and a remedy."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from compress.recipe.places import Problem
from compress.recipe.spec import STAGE_TYPES, Budget, Data, Finetune, Gate, MetricSpec, Model, Recipe, Spec, Target
from compress.recipe.words import KeyPath, show_value, suggest

_SECTIONS: dict[str, type[Spec]] = {
    "model": Model, "data": Data, "metric": MetricSpec, "target": Target, "gates": Gate, "budget": Budget,
}  # fmt: skip
# Sections inside a stage.
_INNER: dict[str, type[Spec]] = {"finetune": Finetune}
_EXAMPLES = {
    "schema": "schema: 1",
    "name": "name: my-int8",
    "model": "model: {ref: mymodel:build}",
    "data": "data: {ref: mymodel:splits}",
    "gates": "gates: [{metric: top1, max_drop: 0.01}]",
    "stages": "stages: [ptq]",
    "ref": "ref: mymodel:build",
    "metric": "metric: top1",
    "direction": "direction: higher",
}


class _Seen(NamedTuple):
    """One complaint: the value found, the schema's limits, the key, and the keys its section allows."""

    value: Any
    limits: Mapping[str, Any]
    key: str
    allowed: list[str]


Sentence = tuple[str, str]


def explain(error: ValidationError, bodies: tuple[KeyPath, ...]) -> list[Problem]:
    """bodies: the path where each stage's own keys are written, e.g. ('stages', 0, 'ptq')."""
    details = error.errors(include_url=False)
    return [_problem(detail, bodies) for detail in details if not _other_form_of_metric(detail)]


def _problem(detail: ErrorDetails, bodies: tuple[KeyPath, ...]) -> Problem:
    path = written_path(_without_union_tag(detail["loc"]), bodies)
    key = str(path[-1]) if path else ""
    seen = _Seen(detail["input"], detail.get("ctx", {}), key, _allowed_keys(path[:-1]))
    fact, remedy = _SENTENCES.get(detail["type"], _anything_else)(seen)
    return Problem(path=path, fact=fact, remedy=remedy, whole=detail["type"] == "value_error")


def written_path(path: KeyPath, bodies: tuple[KeyPath, ...]) -> KeyPath:
    """The schema's path of a key as the user wrote it: a stage's keys stand under its kind."""
    if len(path) > 2 and path[0] == "stages" and isinstance(path[1], int) and path[1] < len(bodies):
        return bodies[path[1]] + path[2:]
    return path


def _without_union_tag(path: KeyPath) -> KeyPath:
    if len(path) > 2 and path[0] == "stages" and path[2] in STAGE_TYPES:
        return (*path[:2], *path[3:])
    return (path[0], *path[2:]) if len(path) > 1 and path[0] == "metric" else path


def _other_form_of_metric(detail: ErrorDetails) -> bool:
    """A metric is text or a mapping: only the complaint about the form the user chose helps."""
    path = detail["loc"]
    if len(path) < 2 or path[0] != "metric":
        return False
    return path[1:] == ("MetricSpec",) if not isinstance(detail["input"], dict) else path[1:] == ("str",)


def _allowed_keys(section: KeyPath) -> list[str]:
    if not section:
        return _keys(Recipe)
    if section[0] == "stages" and len(section) > 2:
        return _keys(_INNER[str(section[-1])] if section[-1] in _INNER else STAGE_TYPES[str(section[2])])
    return _keys(_SECTIONS[str(section[0])]) if section[0] in _SECTIONS else []


def _keys(spec: type[Spec]) -> list[str]:
    return [info.alias or name for name, info in spec.model_fields.items()]


def _unknown_key(seen: _Seen) -> Sentence:
    return "unknown key", suggest(seen.key, seen.allowed, label="Allowed here")


def _missing(seen: _Seen) -> Sentence:
    return "missing", f"Add {_EXAMPLES.get(seen.key, seen.key)}"


def _text(seen: _Seen) -> Sentence:
    if isinstance(seen.value, bool):
        return (
            f"expected text, got {show_value(seen.value)}",
            "YAML reads yes, no, on and off as booleans: put it in quotes",
        )
    expected = "text or a mapping" if seen.key == "metric" else "text"
    return f"expected {expected}, got {show_value(seen.value)}", "Put it in quotes" if _is_number(seen.value) else ""


def _whole_number(seen: _Seen) -> Sentence:
    return f"expected a whole number, got {show_value(seen.value)}", _unquote(seen.value)


def _number(seen: _Seen) -> Sentence:
    return f"expected a number, got {show_value(seen.value)}", _unquote(seen.value)


def _list(seen: _Seen) -> Sentence:
    plain = str(seen.value)
    single = type(seen.value) in (str, int) and re.fullmatch(r"[\w-]{1,40}", plain)
    return f"expected a list, got {show_value(seen.value)}", f"Write [{plain}]" if single else "Write [first, second]"


def _mapping(seen: _Seen) -> Sentence:
    return f"expected a mapping, got {show_value(seen.value)}", f"Write {_EXAMPLES.get(seen.key, '{key: value}')}"


def _choice(seen: _Seen) -> Sentence:
    options = [text or number for text, number in re.findall(r"'([^']*)'|\b(\d+)\b", seen.limits["expected"])]
    expected = " or ".join(options)
    remedy = suggest(seen.value, options, label="Known") if isinstance(seen.value, str) else f"Write {expected}"
    return f"expected {expected}, got {show_value(seen.value)}", remedy


def _name(seen: _Seen) -> Sentence:
    return f"{show_value(seen.value)} is not a name", "Use small letters, digits, - and _, and start with a letter"


def _bound(words: str, limit: str) -> Callable[[_Seen], Sentence]:
    def sentence(seen: _Seen) -> Sentence:
        return f"must be {words} {seen.limits[limit]:g}, got {show_value(seen.value)}", ""

    return sentence


def _too_long(seen: _Seen) -> Sentence:
    return f"takes at most {seen.limits['max_length']} items, got {seen.limits['actual_length']}", "Remove some"


def _own_check(seen: _Seen) -> Sentence:
    return str(seen.limits["error"]), ""


def _anything_else(seen: _Seen) -> Sentence:
    return f"{show_value(seen.value)} is not accepted here", "See docs/recipe.md"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _unquote(value: Any) -> str:
    return "Remove the quotes" if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d+)?", value) else ""


_SENTENCES: dict[str, Callable[[_Seen], Sentence]] = {
    "extra_forbidden": _unknown_key,
    "missing": _missing,
    "string_type": _text,
    "int_type": _whole_number,
    "int_from_float": _whole_number,
    "float_type": _number,
    "list_type": _list,
    "dict_type": _mapping,
    "model_type": _mapping,
    "literal_error": _choice,
    "string_pattern_mismatch": _name,
    "string_too_short": lambda seen: ("empty", f"Write e.g. {_EXAMPLES.get(seen.key, seen.key)}"),
    "too_short": lambda _: ("empty", "Add at least one item"),
    "too_long": _too_long,
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("below", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "value_error": _own_check,
}
