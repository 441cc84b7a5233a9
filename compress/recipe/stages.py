"""How stages are written (`ptq`, or `ptq: {...}`) against how the schema knows them (one object each)."""

from dataclasses import dataclass, field
from typing import Any

from compress.recipe.places import Problem
from compress.recipe.spec import PLANNED_STAGES, STAGE_TYPES, Stage, StageBody
from compress.recipe.words import KeyPath, show_value, suggest


@dataclass(frozen=True, kw_only=True)
class WrittenStages:
    """items: what the schema checks, one per stage; bodies: where each stage's own keys are written."""

    items: list[Any] = field(default_factory=list)
    bodies: tuple[KeyPath, ...] = ()
    problems: tuple[Problem, ...] = ()


def normalise_stages(written: list[Any]) -> WrittenStages:
    """A stage that cannot be read is replaced by one with defaults, so the others are checked all the same."""
    items, bodies, problems = [], [], []
    for index, stage in enumerate(written):
        item, body, problem = _normalise(stage, ("stages", index))
        items.append(item)
        bodies.append(body)
        problems += [problem] if problem else []
    return WrittenStages(items=items, bodies=tuple(bodies), problems=tuple(problems))


def write_stage(stage: Stage) -> dict[str, Any]:
    """The stage as a user could have written it, every default spelled out."""
    return {stage.kind: stage.model_dump(mode="json", by_alias=True) | {"name": stage.label}}


def _normalise(stage: Any, path: KeyPath) -> tuple[Any, KeyPath, Problem | None]:
    if isinstance(stage, str):
        return StageBody(stage, {}) if stage in STAGE_TYPES else {}, path, _unknown_kind(stage, path)
    if not isinstance(stage, dict) or len(stage) != 1:
        found = f"{len(stage)} keys" if isinstance(stage, dict) else show_value(stage)
        fact = f"a stage is one name, or one name with its mapping; got {found}"
        return {}, path, Problem(path=path, fact=fact, remedy="Write ptq, or ptq: {method: auto}")
    kind, body = next(iter(stage.items()))
    problem = _unknown_kind(kind, path)
    if problem:
        return {}, path, problem
    if body is not None and not isinstance(body, dict):
        fact, remedy = f"expected a mapping, got {show_value(body)}", f"Write {kind}, or {kind}: {{key: value}}"
        return {}, path, Problem(path=(*path, kind), fact=fact, remedy=remedy)
    return StageBody(kind, body or {}), (*path, kind), None


def _unknown_kind(kind: str, path: KeyPath) -> Problem | None:
    if kind in STAGE_TYPES:
        return None
    if kind in PLANNED_STAGES:
        fact = f"stage '{kind}' is not available in this version"
        return Problem(path=path, fact=fact, remedy=f"Remove it; available: {', '.join(STAGE_TYPES)}")
    return Problem(
        path=path, fact=f"unknown stage {show_value(kind)}", remedy=suggest(kind, STAGE_TYPES, label="Known")
    )
