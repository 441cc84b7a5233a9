"""How values, key paths and near misses are put in words, the same way in every message."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

KeyPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[\w-]+")
_LONGEST_VALUE = 60
_MOST_OPTIONS = 15


def show_path(path: KeyPath) -> str:
    """('stages', 0, 'ptq', 'method') -> stages[0].ptq.method"""
    parts = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN_KEY.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{shorten(ascii(key))}]")
    return "".join(parts).removeprefix(".")


def show_value(value: Any) -> str:
    """A value as the user would recognise it, on one line and never long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shorten(repr(value))


def one_line(text: str) -> str:
    """Text of unknown origin, with whatever would break the line or the terminal escaped."""
    return shorten("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def shorten(text: str) -> str:
    """Cut long text in the middle of nowhere rather than fill the terminal with it."""
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def closest(word: str, options: Iterable[str]) -> str | None:
    """The option that `word` was most likely meant to be, or None."""
    matches = difflib.get_close_matches(word, list(options), n=1)
    return matches[0] if matches else None


def suggest(word: str, options: Iterable[str], *, label: str) -> str:
    """A remedy for an unknown word: the near miss, or else all there is."""
    known = list(options)
    near = closest(word, known)
    if near:
        return f"Did you mean '{near}'?"
    listed = [*known[:_MOST_OPTIONS], "..."] if len(known) > _MOST_OPTIONS else known
    return f"{label}: {', '.join(listed) or 'none'}"
