"""Checks across keys, once every key by itself is right: stage order, gates that make sense, references that exist."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compress.errors import InputError
from compress.recipe.places import Problem
from compress.recipe.refs import find_ref
from compress.recipe.spec import (
    BUILTIN_METRICS,
    COST_METRICS,
    FIDELITY_METRICS,
    MODEL,
    PLANNED_REFS,
    SPEED_METRICS,
    STABILITY_METRICS,
    STAGE_FORMS,
    Gate,
    MetricSpec,
    Recipe,
    Stage,
)
from compress.recipe.words import KeyPath, show_value, suggest

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_SHARES = (*BUILTIN_METRICS, "agreement")
# What each kind of metric can be held to; a metric of the recipe's own also takes drops.
_LIMITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(COST_METRICS, ("max",)),
    **dict.fromkeys(FIDELITY_METRICS, ("min",)),
    **dict.fromkeys(STABILITY_METRICS, ("max",)),
    **{name: ("max",) if name.startswith("latency_") else ("min",) for name in SPEED_METRICS},
}


def find_contradictions(recipe: Recipe, bodies: tuple[KeyPath, ...], folders: Sequence[Path]) -> Iterator[Problem]:
    """bodies: where each stage's keys are written; folders: the recipe's own comes last (weights lie beside it)."""
    yield from _target(recipe)
    yield from _metric(recipe)
    for index, gate in enumerate(recipe.gates):
        yield from _gate(gate, recipe, ("gates", index))
    yield from _stages(recipe, bodies)
    yield from _references(recipe, folders)
    yield from _weights(recipe.model.weights, folders[-1])
    for section, kwargs in (("model", recipe.model.kwargs), ("data", recipe.data.kwargs)):
        yield from _remote_code(kwargs, (section, "kwargs"))


def _target(recipe: Recipe) -> Iterator[Problem]:
    provider = recipe.target.provider
    if provider != "cpu":
        fact = f"provider '{provider}' is not available in this version"
        yield Problem(path=("target", "provider"), fact=fact, remedy="Write cpu")
    yield from _repeats(recipe.target.batch_sizes, ("target", "batch_sizes"))
    yield from _repeats(recipe.export, ("export",))


def _repeats(values: Sequence[Any], path: KeyPath) -> Iterator[Problem]:
    for index, value in enumerate(values):
        if value in values[:index]:
            yield Problem(path=(*path, index), fact=f"{value} is given twice", remedy="Remove one")


def _metric(recipe: Recipe) -> Iterator[Problem]:
    if isinstance(recipe.metric, MetricSpec):
        if recipe.metric_name in (*_LIMITS, *BUILTIN_METRICS):
            fact = f"the name '{recipe.metric_name}' is taken by a built-in metric"
            yield Problem(path=("metric", "ref"), fact=fact, remedy="Rename the function")
    elif recipe.metric not in BUILTIN_METRICS:
        own = "a metric of your own is {ref: package.module:function, direction: higher}"
        remedy = own.capitalize() if ":" in recipe.metric else suggest(recipe.metric, BUILTIN_METRICS, label="Known")
        remedy += "" if ":" in recipe.metric or remedy.endswith("?") else f"; {own}"
        yield Problem(path=("metric",), fact=f"unknown metric {show_value(recipe.metric)}", remedy=remedy)


def _gate(gate: Gate, recipe: Recipe, path: KeyPath) -> Iterator[Problem]:
    unknown = isinstance(recipe.metric, str) and recipe.metric not in BUILTIN_METRICS
    if unknown and gate.metric in (recipe.metric, *BUILTIN_METRICS):
        return  # the metric itself is told already
    known = (recipe.metric_name, *_LIMITS)
    if gate.metric not in known:
        remedy = suggest(gate.metric, known, label="Known")
        yield Problem(path=(*path, "metric"), fact=f"unknown metric {show_value(gate.metric)}", remedy=remedy)
        return
    limit, value = _limit(gate)
    allowed = _own_limits(recipe) if gate.metric == recipe.metric_name else _LIMITS[gate.metric]
    if limit not in allowed:
        fact = f"{gate.metric} cannot be held to {limit}"
        yield Problem(path=(*path, limit), fact=fact, remedy=f"It takes {' or '.join(allowed)}")
    elif gate.metric in _SHARES and limit in ("min", "max_drop") and not 0 <= value <= 1:
        fact = f"{gate.metric} runs from 0 to 1, got {value:g}"
        yield Problem(path=(*path, limit), fact=fact, remedy="One point in a hundred is 0.01")
    elif gate.metric in (*SPEED_METRICS, *COST_METRICS) and value <= 0:
        yield Problem(path=(*path, limit), fact=f"must be above 0, got {value:g}")


def _limit(gate: Gate) -> tuple[str, float]:
    limits = {name: getattr(gate, name) for name in ("max_drop", "max_relative_drop", "min", "max")}
    return next((name, value) for name, value in limits.items() if value is not None)


def _own_limits(recipe: Recipe) -> tuple[str, ...]:
    lower = isinstance(recipe.metric, MetricSpec) and recipe.metric.direction == "lower"
    return ("max_drop", "max_relative_drop", "max" if lower else "min")


def _stages(recipe: Recipe, bodies: tuple[KeyPath, ...]) -> Iterator[Problem]:
    made = {MODEL: "float"}
    for stage, body in zip(recipe.stages, bodies, strict=True):
        name, source = stage.label, stage.from_ or MODEL
        needs, makes = STAGE_FORMS[stage.kind]
        floats = [known for known, form in made.items() if form == needs]
        if source not in made:
            fact = f"no earlier stage is named {show_value(source)}"
            yield Problem(path=(*body, "from"), fact=fact, remedy=suggest(source, made, label="Known here"))
        elif made[source] != needs:
            fact = f"{stage.kind} takes a {needs} candidate, but '{source}' makes {made[source]}"
            remedy = f"Remove `from`, or name a {needs} one: {', '.join(floats)}"
            yield Problem(path=(*body, "from"), fact=fact, remedy=remedy)
        elif stage.kind == "prune" and source != MODEL:
            fact, remedy = "prune starts from the float model", "Remove `from`; steps: 2 prunes in two rounds"
            yield Problem(path=(*body, "from"), fact=fact, remedy=remedy)
        yield from _narrow_weights(stage, body)
        yield from _finishers(recipe, stage, body)
        if name in made:
            where = (*body, "name") if stage.name else body[:2]
            remedy = f"Give it another, e.g. {stage.kind}: {{name: {name}-2}}"
            yield Problem(path=where, fact=f"the stage name '{name}' is taken", remedy=remedy)
        made[name] = makes


def _narrow_weights(stage: Stage, body: KeyPath) -> Iterator[Problem]:
    bits, method = getattr(stage, "weight_bits", 8), getattr(stage, "method", "auto")
    if bits < 8 and method != "auto" and not method.startswith("u8s8-"):
        fact = f"{method} keeps weights of 8 bits"
        yield Problem(path=(*body, "weight_bits"), fact=fact, remedy="Remove it, or write method: u8s8-channel")


def _finishers(recipe: Recipe, stage: Stage, body: KeyPath) -> Iterator[Problem]:
    """`then` names quantization stages of this recipe."""
    known = [one.label for one in recipe.stages if STAGE_FORMS[one.kind][1] != "float"]
    for index, name in enumerate(getattr(stage, "then", None) or ()):
        if name not in known:
            fact = f"no quantization stage is named {show_value(name)}"
            yield Problem(path=(*body, "then", index), fact=fact, remedy=suggest(name, known, label="Known"))


def _references(recipe: Recipe, folders: Sequence[Path]) -> Iterator[Problem]:
    own_metric = {"metric": recipe.metric.ref} if isinstance(recipe.metric, MetricSpec) else {}
    refs = {"model": recipe.model.ref, "data": recipe.data.ref, **own_metric}
    for section, ref in refs.items():
        planned = next((prefix for prefix in PLANNED_REFS if ref.startswith(prefix)), None)
        if planned:
            fact = f"`{planned}` references are not available in this version"
            yield Problem(path=(section, "ref"), fact=fact, remedy="Use package.module:function")
            continue
        try:
            find_ref(ref, folders)
        except InputError as error:
            yield Problem(path=(section, "ref"), fact=error.fact, remedy=error.remedy)


def _weights(weights: str | None, folder: Path) -> Iterator[Problem]:
    if weights is None:
        return
    path, suffix = ("model", "weights"), os.path.splitext(weights)[1].lower()
    if suffix in _PICKLES:
        fact = f"{show_value(weights)} is a pickle, and a pickle can run code"
        yield Problem(path=path, fact=fact, remedy="Convert it with safetensors.torch.save_file")
    elif suffix != ".safetensors":
        yield Problem(
            path=path, fact=f"{show_value(weights)} does not end in .safetensors", remedy="Save it as safetensors"
        )
    elif not os.path.isfile(folder / weights):
        remedy = "The path counts from the recipe's folder"
        yield Problem(path=path, fact=f"no file {show_value(weights)}", remedy=remedy)


def _remote_code(value: Any, path: KeyPath) -> Iterator[Problem]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        if key == "trust_remote_code":
            fact = "trust_remote_code would run code from a download"
            yield Problem(path=(*path, key), fact=fact, remedy="Keep the code you trust in a module of your own")
        yield from _remote_code(inner, (*path, key))
