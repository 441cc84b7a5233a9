"""`--set key.path=value`: changes a copy of the recipe's data before the checks, so that all of them apply."""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from compress.recipe.document import read_document
from compress.recipe.places import Problem
from compress.recipe.words import KeyPath, one_line, show_path, show_value, suggest

_KEY = re.compile(r"[^\W\d][\w-]*(\[\d{1,6}\])*(\.[^\W\d][\w-]*(\[\d{1,6}\])*)*")
_STEP = re.compile(r"\[(\d+)\]|([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Overridden:
    """data: the changed copy; written: key path to the `--set` key that wrote it."""

    data: Any
    written: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _CannotSetError(Exception):
    """Carries a fact and a remedy to the one place that knows the `--set` it belongs to."""

    def __init__(self, fact: str, remedy: str = "") -> None:
        super().__init__(fact, remedy)
        self.fact, self.remedy = fact, remedy


def apply_overrides(data: dict[str, Any], overrides: Sequence[str]) -> Overridden:
    """data is left as it is. A later override wins over an earlier one."""
    result = Overridden(data=copy.deepcopy(data))
    for override in overrides:
        key = one_line(override.partition("=")[0].strip()) or "(empty)"
        try:
            path, value = _parse(override)
            written = _resolve(result.data, path)
            _assign(result.data, written, value)
            result.written[written] = key
        except _CannotSetError as problem:
            result.problems.append(Problem(path=(), fact=problem.fact, remedy=problem.remedy, override=key))
    return result


def stage_names(stages: list[Any]) -> list[str]:
    """The name of each stage as written, checked or not: its own, or else its kind."""
    return [_stage_name(stage) for stage in stages]


def _stage_name(stage: Any) -> str:
    if isinstance(stage, dict) and len(stage) == 1:
        kind, body = next(iter(stage.items()))
        name = body.get("name") if isinstance(body, dict) else None
        return name if isinstance(name, str) else str(kind)
    return stage if isinstance(stage, str) else ""


def _parse(override: str) -> tuple[KeyPath, Any]:
    key, equals, text = override.partition("=")
    if not equals or not text.strip():
        raise _CannotSetError("no value", "Write --set key.path=value")
    if not _KEY.fullmatch(key.strip()):
        raise _CannotSetError("not a key path", "Write it like target.threads, gates[0].min or stages.ptq.method")
    path = tuple(int(index) if index else name for index, name in _STEP.findall(key))
    document = read_document(text.strip())
    if document.problems:
        raise _CannotSetError(document.problems[0].fact, document.problems[0].remedy)
    return path, document.data


def _resolve(data: dict[str, Any], path: KeyPath) -> KeyPath:
    """Stages may be named instead of counted, and their kind may be left out: the path as the recipe writes it."""
    stages = data.get("stages")
    if path[0] != "stages" or len(path) < 2 or not isinstance(stages, list):
        return path
    names = stage_names(stages)
    if isinstance(path[1], str) and path[1] not in names:
        raise _CannotSetError(f"no stage named '{path[1]}'", suggest(path[1], names, label="Stages"))
    index = names.index(path[1]) if isinstance(path[1], str) else path[1]
    _check_index(stages, index, ("stages",))
    stage = stages[index]
    kind = next(iter(stage)) if isinstance(stage, dict) and len(stage) == 1 else stage
    rest = path[3:] if path[2:3] == (kind,) else path[2:]
    by_name = isinstance(path[1], str)
    if not isinstance(kind, str) or not (rest or by_name):
        return ("stages", index, *rest)
    if isinstance(stage, str):
        stages[index] = {kind: {}}
    return ("stages", index, kind, *rest)


def _assign(data: Any, path: KeyPath, value: Any) -> None:
    for depth, key in enumerate(path[:-1], start=1):
        data = _enter(data, key, path[:depth])
    if isinstance(path[-1], int):
        _check_index(data, path[-1], path[:-1])
    elif not isinstance(data, dict):
        raise _not_a_mapping(data, path[:-1])
    data[path[-1]] = value


def _enter(data: Any, key: str | int, path: KeyPath) -> Any:
    """The section under `key`, made on the way where the recipe leaves it out."""
    if isinstance(key, int):
        _check_index(data, key, path[:-1])
    elif not isinstance(data, dict):
        raise _not_a_mapping(data, path[:-1])
    elif data.get(key) is None:
        data[key] = {}
    return data[key]


def _check_index(data: Any, index: int, path: KeyPath) -> None:
    if not isinstance(data, list):
        raise _CannotSetError(f"{show_path(path)} is {show_value(data)}, not a list", "Leave the [index] out")
    if index >= len(data):
        count = "1 item" if len(data) == 1 else f"{len(data)} items"
        raise _CannotSetError(f"{show_path(path)} has {count}, counted from 0", "Set the whole list to add one")


def _not_a_mapping(data: Any, path: KeyPath) -> _CannotSetError:
    return _CannotSetError(
        f"{show_path(path)} is {show_value(data)}, not a mapping", f"Set {show_path(path)} as a whole"
    )
