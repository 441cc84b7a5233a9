"""Where a file's time goes in the target runtime: its kernels by what they do. No torch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from compress.analyze import onnx_ops
from compress.analyze.attribute import INSERTED_MOVES
from compress.data import Array
from compress.export.audit import HEAVY_FLOAT_OPS, INTEGER_OPS
from compress.measure import isolated

RuntimeKind = Literal["compute", "movement", "conversion", "elementwise", "other"]

CONVERSION = frozenset({"Cast", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
INTEGER_COMPUTE = INTEGER_OPS - {"QLinearConcat"}
FUSED_COMPUTE = frozenset(
    {"NhwcFusedConv", "MatMulNBits", "GroupQueryAttention", "DynamicQuantizeGRU", "QOrderedMatMul"}
)
FUSED_ELEMENTWISE = frozenset({"BiasGelu", "FastGelu", "QuickGelu", "BiasSplitGelu", "BiasAdd", "Gelu"})
# From this share of the time on, a layout problem is worth a sentence.
NOTABLE = 0.10


def runtime_operator_times(path: Path, feeds: dict[str, Array], bench: isolated.Bench) -> dict[str, Any]:
    """Profile a file on `feeds` and sort its kernels; see `sorted_operators`."""
    return sorted_operators(isolated.profile(path, feeds, bench))


def sorted_operators(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """nodes: {name, op, time_ms}, e.g. from `isolated.profile`.

    Returns rows (slowest first: name, op, kind, time_ms, share), total_ms, kinds and ops (share of time by each, the
    largest first) and a sentence that says where the time is.
    """
    total = sum(float(node["time_ms"]) for node in nodes)
    rows = [
        {
            "name": node["name"],
            "op": node["op"],
            "kind": kind_of(node["op"]),
            "time_ms": float(node["time_ms"]),
            "share": float(node["time_ms"]) / total if total else 0.0,
        }
        for node in sorted(nodes, key=lambda node: (-float(node["time_ms"]), str(node["name"])))
    ]
    kinds, ops = _shares(rows, "kind"), _shares(rows, "op")
    return {"rows": rows, "total_ms": total, "kinds": kinds, "ops": ops, "sentence": _sentence(kinds, ops)}


def kind_of(op: str) -> RuntimeKind:
    """What a kernel of the runtime does, by its operator type."""
    for kind, names in _KINDS:
        if op in names:
            return kind
    return "other"


_KINDS: tuple[tuple[RuntimeKind, frozenset[str]], ...] = (
    ("conversion", CONVERSION),
    ("movement", onnx_ops.MOVE | onnx_ops.GATHER | onnx_ops.VIEW | INSERTED_MOVES | {"QLinearConcat"}),
    # Before compute: the integer forms of Add, Mul and Sigmoid are element by element as well.
    ("elementwise", onnx_ops.ELEMENTWISE | FUSED_ELEMENTWISE),
    ("compute", HEAVY_FLOAT_OPS | INTEGER_COMPUTE | FUSED_COMPUTE),
)


def _shares(rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, float]:
    shares: Counter[str] = Counter()
    for row in rows:
        shares[row[key]] += row["share"]
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _sentence(kinds: Mapping[str, float], ops: Mapping[str, float]) -> str:
    if not any(ops.values()):
        return "no kernel was timed"
    lead = ", ".join(f"{op} ({100 * share:.0f} %)" for op, share in list(ops.items())[:2])
    moved, converted = kinds.get("movement", 0.0), kinds.get("conversion", 0.0)
    notes = []
    if moved >= NOTABLE:
        notes.append(f"{100 * moved:.0f} % moves data (transposes, copies, reorders) without computing")
    if converted >= NOTABLE:
        notes.append(f"{100 * converted:.0f} % converts between number formats")
    return "; ".join([f"time is in {lead}", *notes])
