"""Mixed precision: measure what each operator loses in int8 and saves in time, then move the fewest back to float."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compress.analyze.file_nodes import on_file_nodes
from compress.code import code_digest
from compress.errors import InputError
from compress.files import write_json
from compress.gate import accepted, outcome_of
from compress.measure.accuracy import Runner, evaluate_file
from compress.measure.stats import Floats
from compress.quantize.graph import load_graph
from compress.quantize.ort import quantize_static
from compress.quantize.sensitivity import Moved, Operator, by_count, by_time, moving_costs, smallest_restoring, units_of
from compress.quantize.ways import Way
from compress.recipe.spec import COST_METRICS, SPEED_METRICS, STABILITY_METRICS
from compress.stages.analyze import profile
from compress.stages.context import Context, machine_key
from compress.stages.judge import judge
from compress.stages.ptq_files import Source, adjust_, make_file, prepared, ranges_of
from compress.stages.trial import Trial, evaluate

SAMPLES = 128


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The way found, or why there is none; note: the operators that were moved and what they cost."""

    way: Way | None
    note: str


def find_mixed(source: Source, base: Way, baseline: Trial) -> Mixed:
    """The cheapest operators of `base` to move back so that the gates on quality pass on `select`."""
    operators = measure_operators(source, base)
    passes = _judge(source, base, baseline)
    found = [smallest_restoring(operators, passes, cost) for cost in (by_time, by_count)]
    moved = [one for one in found if one is not None]
    worst = ", ".join(_told(one) for one in sorted(operators, key=lambda one: -one.noise)[:3])
    if not moved:
        return Mixed(way=None, note=f"no set of operators in float restores the gates (noisiest: {worst})")
    best = min(moved, key=lambda one: (one.cost_ms, len(one.operators)))
    names = ", ".join(_told(one) for one in best.operators)
    note = f"back in float: {names}; predicted to cost {best.cost_ms:.3f} ms{_against(found[1])}"
    return Mixed(way=replace(base, keep_float=tuple(sorted(best.nodes))), note=note)


def measure_operators(source: Source, base: Way) -> list[Operator]:
    """Noise, score and cost of every quantized operator of the file that `base` makes."""
    context, made = source.context, make_file(source, base)
    path = prepared(source, base.prepare).path / "model.onnx"
    units = units_of(load_graph(path), source.op_types, made.facts["exclude"])
    noise = _noise(source, base, units)
    costs = _costs(context, source, base, units)
    return [
        Operator(nodes=unit, noise=noise[unit[0]][0], score_lost=noise[unit[0]][1], cost_ms=costs[unit[0]])
        for unit in units
        if unit[0] in noise
    ]


def _noise(source: Source, base: Way, units: Sequence[tuple[str, ...]]) -> dict[str, tuple[float, float]]:
    """(noise, score lost) by operator, each alone in int8 in the target runtime; an interrupted search goes on."""
    context = source.context
    entry = prepared(source, base.prepare)

    def make(folder: Path) -> dict[str, Any]:
        return {"operators": _noise_of_each(source, base, units, folder / "work")}

    key = machine_key(context) | {
        "source": entry.digest,
        "quantized": make_file(source, base).digest,
        "calibration": context.inputs.splits.digests["calibration"],
        "metric": context.inputs.metric_digest,
        "code": code_digest("compress.quantize.ort"),
        "own": code_digest("compress.quantize.sensitivity"),
    }
    found = context.store.obtain("sensitivity", key, make).facts["operators"]
    return {name: (float(noise), float(lost)) for name, (noise, lost) in found.items()}


def _noise_of_each(
    source: Source, base: Way, units: Sequence[tuple[str, ...]], work: Path
) -> dict[str, tuple[float, float]]:
    work.mkdir(parents=True, exist_ok=True)
    notebook = work / "operators.json"
    found: dict[str, Any] = json.loads(notebook.read_text()) if notebook.exists() else {}
    path = prepared(source, base.prepare).path / "model.onnx"
    ranges, _ = ranges_of(source, base)
    reference, scores = _outputs(source, path)
    everything = [node.name for node in load_graph(path).proto.graph.node]
    for done, unit in enumerate(units):
        source.progress("sensitivity")(done, len(units))
        if unit[0] in found:
            continue
        alone = work / "alone.onnx"
        kept = [name for name in everything if name not in unit]
        quantize_static(path, alone, base.scheme, ranges, source.op_types, kept)
        if base.learn or base.bias:
            adjust_(source, base, path, alone)
        outputs, new = _outputs(source, alone)
        noise = float(np.square(outputs - reference).sum() / max(float(np.square(reference).sum()), 1e-30))
        found[unit[0]] = (noise, source.context.inputs.metric.sign * float(scores.mean() - new.mean()))
        write_json(notebook, found)
    return found


def _outputs(source: Source, path: Path) -> tuple[Floats, Floats]:
    """First output and scores over SAMPLES calibration samples."""
    context = source.context
    target = context.recipe.target
    runner = Runner(provider=target.provider, threads=target.threads, batch=max(8, *target.batch_sizes))
    split = source.calibration.take(SAMPLES)
    found = evaluate_file(path, split, context.inputs.metric, runner, lambda _done, _total: None)
    return found.outputs.astype(np.float64), found.scores


def _costs(context: Context, source: Source, base: Way, units: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Milliseconds by operator, from profiles of both files on the target; conversions at the mean of those seen."""
    entry, made = prepared(source, base.prepare), make_file(source, base)
    files = {}
    for name, one in (("float", entry), ("int8", made)):
        path = one.path / "model.onnx"
        rows = on_file_nodes(path, profile(context, path, one.digest))
        files[name] = {str(row["name"]): float(row["time_ms"]) for row in rows}
        # The float file has none; the int8 one has them where it begins, ends, and goes back to float.
        conversions = [
            float(row["time_ms"]) for row in rows if str(row["op"]).endswith(("::QuantizeLinear", "::DequantizeLinear"))
        ]
    boundary = 2 * float(np.mean(conversions)) if conversions else 0.0
    return moving_costs(units, files["float"], files["int8"], boundary)


def _judge(source: Source, base: Way, baseline: Trial) -> Callable[[tuple[str, ...]], bool]:
    """Whether the gates on quality pass with these nodes in float. Speed is not asked: the file is timed at the end."""
    context = source.context

    def passes(nodes: tuple[str, ...]) -> bool:
        if context.out_of_time():
            return False
        try:
            made = make_file(source, replace(base, keep_float=nodes))
            trial = evaluate(context, made.path / "model.onnx", made.digest, "select", reference=baseline.outputs)
        except InputError:  # a set that leaves nothing to quantize, or that the runtime does not take
            return False
        gates = judge(context, baseline, trial, [], "select")
        count = len(context.recipe.gates)
        fixed = (*SPEED_METRICS, *COST_METRICS, *STABILITY_METRICS)
        asked = [i for i in range(count) if context.recipe.gates[i].metric not in fixed]
        fine = {place for place, i in enumerate(asked) if i in accepted(context.recipe.gates)}
        return outcome_of([gates[i] for i in asked], fine) == "pass"

    return passes


def _told(operator: Operator) -> str:
    decibel = -10 * np.log10(max(operator.noise, 1e-30))
    return (
        f"{operator.name} ({decibel:.1f} dB alone, {operator.score_lost:+.4f} of the score, {operator.cost_ms:+.3f} ms)"
    )


def _against(by_noise: Moved | None) -> str:
    if by_noise is None:
        return ""
    return f", the noisiest ones alone {by_noise.cost_ms:.3f} ms ({len(by_noise.operators)} operators)"
