"""Try one quantized file on the target: audit, scores, timing, gates, and in words what it is and why it fails."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.candidate import Candidate
from compress.code import code_digest
from compress.errors import InputError
from compress.export.audit import audit_graph
from compress.files import sha256_of
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.quantize.equalize import channel_ranges, spread_of
from compress.quantize.graph import layers, load_graph
from compress.quantize.ort import check_saturation
from compress.quantize.ways import Way
from compress.stages.context import Context, machine_key
from compress.stages.judge import by_batch, judge, judged, with_speed
from compress.stages.ptq_files import Source
from compress.stages.trial import Trial, evaluate, time_against
from compress.store import Entry, Key

SCREENING = Plan(seconds=2.0, min_calls=460)
SATURATION_SAMPLES = 64
# One scale for a whole weight leaves the median channel fewer than 16 of 127 codes from this ratio on.
WIDE_SPREAD = 8.0


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A way and what came of it; way is None for a file that no further step can start from."""

    way: Way | None
    candidate: Candidate


def try_file(source: Source, name: str, way: Way | None, make: Callable[[], Entry], baseline: Trial) -> Tried:
    """Make the file, measure and judge it. What breaks on the way is a failed candidate with the reason."""
    context, label, started = source.context, source.label, time.monotonic()
    try:
        made = make()
        path = made.path / "model.onnx"
        audit = audit_file(context, made, source.model.path)
        trial = evaluate(context, path, made.digest, "select", reference=baseline.outputs)
        timings = [
            time_against(context, source.model.timed_against, path, batch, SCREENING)
            for batch in context.recipe.target.batch_sizes
        ]
    except InputError as error:
        failed = Candidate(
            name=f"{label}/{name}", stage=label, form="int8", parent=source.model.name, note=str(error),
            seconds=time.monotonic() - started,
        )  # fmt: skip
        return Tried(way=way, candidate=failed)
    gates = judge(context, baseline, trial, timings, "select")
    candidate = Candidate(
        name=f"{label}/{name}", stage=label, form="int8", parent=source.model.name,
        artefact=str(path), sha256=sha256_of(path),
        metrics=with_speed(trial, timings, baseline), by_batch=by_batch(timings), gates=gates,
        audit=audit, parity=_parity(source, trial), note=_note(source, way, made.facts, audit),
        seconds=round(time.monotonic() - started, 2),
    )  # fmt: skip
    return Tried(way=way, candidate=judged(context, candidate))


def audit_key(context: Context, digest: str) -> Key:
    """What an audit depends on."""
    code = [code_digest("compress.export.audit"), code_digest("compress.quantize.ort")]
    return machine_key(context) | {"file": digest, "code": code}


def spread_note(path: Path) -> str:
    """Which weights have channels too unlike for one scale, the worst three named; empty when none has."""
    graph = load_graph(path)
    found = []
    for layer in layers(graph):
        weight = graph.constant(layer.weight)
        if weight is not None and weight.ndim >= 2:
            found.append((spread_of(weight, layer.output_axis), layer.node))
    wide = sorted(((spread, node) for spread, node in found if spread >= WIDE_SPREAD), reverse=True)
    if not wide:
        return ""
    shown = ", ".join(f"{node} {spread:.0f}x" for spread, node in wide[:3])
    return (
        f"weight ranges differ too much between channels for one scale per tensor in {len(wide)} layers "
        f"(widest channel against the median: {shown})"
    )


def dead_note(path: Path) -> str:
    """How many output channels hold nothing but zeros, and where; empty when none does."""
    graph = load_graph(path)
    weights = [(layer, graph.constant(layer.weight)) for layer in layers(graph)]
    dead = {
        layer.node: int((channel_ranges(weight, layer.output_axis) == 0).sum())
        for layer, weight in weights
        if weight is not None and weight.ndim >= 2
    }
    found = sorted(((count, node) for node, count in dead.items() if count), reverse=True)
    if not found:
        return ""
    shown = ", ".join(f"{count} of {node}" for count, node in found[:3])
    return f"output channels that are zero throughout: {shown}; they cost time and hold nothing, pruning removes them"


def audit_file(context: Context, made: Entry, reference: Path) -> dict[str, Any]:
    """Which kernels run, and whether they overflow, against the float file `reference`. Depends on the machine."""
    path = made.path / "model.onnx"

    def make(_folder: Path) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
            optimised = Path(scratch) / "optimised.onnx"
            opened = isolated.open_isolated(path, optimised, context.bench)
            audit = audit_graph(optimised, opened["providers"], context.recipe.target.provider)
        feeds, _ = next(context.inputs.splits["calibration"].batches(SATURATION_SAMPLES))
        return audit | {"saturation": check_saturation(path, reference, feeds, context.recipe.target.threads)}

    return context.store.obtain("audit", audit_key(context, made.digest), make).facts


def _parity(source: Source, trial: Trial) -> dict[str, Any]:
    """The float file's parity with torch, and how far this file's outputs are from the float file's."""
    agreement = trial.metrics["agreement"].value
    return source.model.parity | {
        "note": f"{source.model.parity['note']}; this file agrees with the float file on {agreement:.4f} of select"
    }


def _note(source: Source, way: Way | None, made: dict[str, Any], audit: dict[str, Any]) -> str:
    parts = [audit["note"]]
    if made["masks"]:
        parts.append(f"attention-mask nodes left in float: {', '.join(made['masks'])}")
    if way is not None and way.scheme.kind == "static" and not way.scheme.per_channel and not way.prepare:
        parts.append(spread_note(source.model.path))
    parts.append(dead_note(source.model.path))
    if audit["saturation"]["saturates"]:
        lost_db = audit["saturation"]["lost_db"]
        parts.append(f"integer sums overflow on this CPU ({lost_db:.1f} dB lost): used only if nothing else passes")
    return "; ".join(filter(None, [*parts, *made["remarks"]]))
