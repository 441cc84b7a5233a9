"""The op table as the JSON document `compress.analysis/1`. Pure Python."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compress.analyze.attribute import attributed
from compress.analyze.schema import ANALYSIS
from compress.analyze.table import LEVELS, Op, OpTable, TensorInfo
from compress.analyze.traffic import Tally, Traffic, traffic

if TYPE_CHECKING:
    from compress.analyze.advice import Advice
    from compress.analyze.bounds import Bound, Span
    from compress.analyze.predict import Prediction
    from compress.analyze.verdict import Verdict
    from compress.device.ceilings import Ceilings

Measured = Sequence[Mapping[str, Any]]


def analysis_dict(table: OpTable, *, measured: Measured | None = None, top: int = 10) -> dict[str, Any]:
    """Everything counted, in a fixed order, with units in the names; see `schema.analysis_schema`.

    measured: rows {"module"?, "op"?, "name"?, "time_ms"} in the order they ran; each goes to the first op without a
    time that matches what the row names (`name` is matched like `module`). The rest is summed in `unattributed_ms`.
    """
    moved = traffic(table)
    times, unattributed = attributed(table.ops, measured or ())
    rows = [_op_row(op, moved, index, times.get(index)) for index, op in enumerate(table.ops)]
    return {
        "schema": ANALYSIS,
        "source": table.source,
        "model": _model(table),
        "ops": rows,
        "levels": {level: _level(moved.total[level]) for level in LEVELS},
        "kinds": _by_kind(table, moved),
        "top": {"macs": _top(rows, "macs", top), "bytes": _top_bytes(moved, top)},
        "unknown_ops": [{"op": op, "calls": calls} for op, calls in table.unknown_ops],
        "coverage": table.coverage,
        "notes": list(table.notes),
        "error": table.error or None,
        "unattributed_ms": unattributed if measured is not None else None,
        "device": None,
        "classes": {},
        "verdict": None,
        "stages": [],
    }


def complete(
    analysis: Mapping[str, Any],
    verdict: "Verdict",
    predictions: "Sequence[Prediction]",
    ceilings: "Ceilings",
    *,
    advice: "Sequence[Advice]" = (),
) -> dict[str, Any]:
    """`analysis` (of `analysis_dict`) with device, classes, verdict and stages filled in, as a new document."""
    return {
        **analysis,
        "unattributed_ms": verdict.shares.unattributed_ms if verdict.measured else analysis["unattributed_ms"],
        "device": _device(ceilings),
        "classes": _classes(verdict),
        "verdict": _verdict(verdict, advice),
        "stages": [stage_row(one) for one in predictions],
        "op_classes": [_op_class(verdict, index) for index in range(len(verdict.shares.rows))],
    }


def _device(ceilings: "Ceilings") -> dict[str, Any]:
    return {
        "name": ceilings.name,
        "source": ceilings.source,
        "confidence": ceilings.confidence,
        "threads": ceilings.threads,
        "flop_per_s": {dtype: ceilings.peak(dtype) for dtype in ceilings.flop_per_s},
        "bandwidth_byte_per_s": {level.name: ceilings.bandwidth(level.name) for level in ceilings.levels},
        "ridge_flop_per_byte": {dtype: ceilings.ridge(dtype) for dtype in ceilings.flop_per_s},
        "dispatch_ns": {name: figure.value for name, figure in ceilings.dispatch_ns.items()},
        "node_ns": ceilings.node_ns.value if ceilings.node_ns else None,
        "contaminated": ceilings.contaminated,
        "wall_over_cpu": ceilings.contention.wall_over_cpu if ceilings.contention else None,
        "date": ceilings.date,
        "note": ceilings.note,
    }


def _classes(verdict: "Verdict") -> dict[str, dict[str, float | int]]:
    counts = Counter(row.class_ for row in verdict.shares.rows)
    return {
        name: {"share": share, "time_ms": verdict.shares.time_ms(name), "ops": counts[name]}
        for name, share in verdict.shares.share.items()
    }


def _verdict(verdict: "Verdict", advice: "Sequence[Advice]") -> dict[str, Any]:
    return {
        "class": verdict.class_,
        "share": verdict.share,
        "runner_up": verdict.runner_up,
        "mixed": verdict.mixed,
        "confidence": verdict.confidence,
        "sentence": verdict.sentence,
        "evidence": list(verdict.evidence),
        "errors": [one.sentence for one in verdict.errors],
        "runtime": verdict.shares.runtime,
        "bound": _bound(verdict.bound),
        "measured_ms": _span(verdict.measured.end_to_end_ms) if verdict.measured else None,
        "advice": [{"remedy": one.remedy, "sentence": one.sentence} for one in advice],
    }


def _bound(bound: "Bound") -> dict[str, Any]:
    return {
        "compute_ms": bound.compute_ms,
        **{f"memory_{level.lower()}_ms": bound.memory_ms[level] for level in LEVELS},
        "floor_ms": bound.floor_ms,
        "hard_ms": bound.hard_ms,
        "limit": bound.limit,
    }


def stage_row(one: "Prediction") -> dict[str, Any]:
    """One method as plain data."""
    return {
        "name": one.name,
        "hard_speedup": one.hard,
        "expected_speedup": one.expected,
        "probe_speedup": _span(one.probe) if one.probe is not None else None,
        "helps": one.helps,
        "why": one.why,
    }


def _span(span: "Span") -> dict[str, float | int]:
    return {"value": span.value, "low": span.low, "high": span.high, "n": span.n}


def _op_class(verdict: "Verdict", index: int) -> dict[str, Any]:
    row = verdict.shares.rows[index]
    low, high = row.bound.interval_ms
    return {
        "id": index,
        "class": row.class_,
        "time_ms": row.time_ms,
        "measured": row.measured,
        "bound_low_ms": low,
        "bound_high_ms": high,
    }


def _model(table: OpTable) -> dict[str, Any]:
    return {
        "params": table.params,
        "bytes": table.weight_bytes,
        "macs": table.macs,
        "flops": table.flops,
        "elementwise_flops": table.elementwise_flops,
        "causal_flops": table.flops - sum(op.flops // 2 for op in table.ops if op.causal),
        "inputs": [_tensor(t) for t in table.inputs],
        "outputs": [_tensor(t) for t in table.outputs],
    }


def _op_row(op: Op, moved: Traffic, index: int, time_ms: float | None) -> dict[str, Any]:
    fused = moved.bytes_of("G", index)
    return {
        "id": op.id,
        "op": op.op,
        "module": op.module,
        "kind": op.kind,
        "causal": op.causal,
        "inputs": [_tensor(t) for t in op.inputs],
        "outputs": [_tensor(t) for t in op.outputs],
        "macs": op.macs,
        "flops": op.flops,
        "elementwise_flops": op.elementwise_flops,
        "levels": {level: _level(moved.per_op[level][index]) for level in LEVELS},
        "intensity_flop_per_byte": op.flops / fused if fused else None,
        "time_ms": time_ms,
    }


def _tensor(tensor: TensorInfo) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "role": tensor.role,
        "bytes": tensor.nbytes,
    }


def _level(tally: Tally) -> dict[str, int]:
    return {**{f"{tag}_bytes": nbytes for tag, nbytes in tally.items()}, "total_bytes": sum(tally.values())}


def _by_kind(table: OpTable, moved: Traffic) -> dict[str, dict[str, int]]:
    calls, macs, fused = Counter[str](), Counter[str](), Counter[str]()
    for index, op in enumerate(table.ops):
        calls[op.kind] += 1
        macs[op.kind] += op.macs
        fused[op.kind] += moved.bytes_of("G", index)
    return {kind: {"calls": calls[kind], "macs": macs[kind], "g_bytes": fused[kind]} for kind in sorted(calls)}


def _top(rows: list[dict[str, Any]], key: str, count: int) -> list[int]:
    heavy = [row for row in rows if row[key] > 0]
    return [row["id"] for row in sorted(heavy, key=lambda row: (-row[key], row["id"]))[:count]]


def _top_bytes(moved: Traffic, count: int) -> list[int]:
    sizes = [(-moved.bytes_of("G", index), index) for index in range(len(moved.per_op["G"]))]
    return [index for nbytes, index in sorted(sizes)[:count] if nbytes < 0]
