"""What each op costs, in the form that bounds take and methods change. Pure Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from compress.analyze import fusion, kinds
from compress.analyze.rates import is_conv, working_types
from compress.analyze.table import HEAVY, LEVELS, Op, OpTable
from compress.analyze.traffic import Tally, traffic
from compress.device.ceilings import Ceilings

Runtime = Literal["torch", "onnxruntime"]
# Eager torch runs op by op, so unfused bytes move; a graph runtime fuses what is element-wise.
LEVEL_OF_RUNTIME: dict[str, str] = {"torch": "U", "onnxruntime": "G"}


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One op. bytes: by level (C, G, U) and tag; floor_ns: cost of its start; hard_floor_ns: what no fusion avoids."""

    flops: float
    dtype: str
    conv: bool
    bytes: Mapping[str, Tally]
    floor_ns: float
    hard_floor_ns: float

    def total_bytes(self, level: str) -> float:
        return sum(self.bytes[level].values())


@dataclass(frozen=True, kw_only=True)
class Costs:
    """All ops, in the order of the table. resident_bytes: weights that are read, and the most activations alive."""

    ops: tuple[Cost, ...]
    resident_bytes: float

    def total_bytes(self, level: str) -> float:
        return sum(op.total_bytes(level) for op in self.ops)

    def tag_bytes(self, level: str, tag: str) -> float:
        return sum(op.bytes[level][tag] for op in self.ops)


def costs_of(table: OpTable, ceilings: Ceilings, runtime: Runtime, dtypes: Sequence[str] | None = None) -> Costs:
    """Costs of a table in a runtime. dtypes: the type each op works in, where it is not the one of its inputs."""
    moved = traffic(table)
    types = dtypes or working_types(table.ops)
    floors = floors_ns(table, ceilings, runtime)
    rows = tuple(
        Cost(
            flops=op.flops,
            dtype=types[index],
            conv=is_conv(op),
            bytes={level: moved.per_op[level][index] for level in LEVELS},
            floor_ns=floors[index],
            hard_floor_ns=floors[index] if runtime == "torch" or op.kind in HEAVY else 0.0,
        )
        for index, op in enumerate(table.ops)
    )
    return Costs(ops=rows, resident_bytes=moved.total["C"]["weight"] + live_bytes(table))


def floors_ns(table: OpTable, ceilings: Ceilings, runtime: Runtime) -> list[float]:
    """Nanoseconds to start each op: by class in eager torch, once a fusion group in ONNX Runtime; 0 where unknown.

    ONNX Runtime may join more than a greedy fusion does, so only the groups of its heavy ops are hard.
    """
    if runtime == "torch":
        return [_dispatch_ns(op, ceilings) for op in table.ops]
    node = ceilings.node_ns.value if ceilings.node_ns else 0.0
    groups = fusion.groups(table.ops)
    first = {group: index for index, group in reversed(list(enumerate(groups))) if group >= 0}
    return [node if first.get(group) == index else 0.0 for index, group in enumerate(groups)]


def live_bytes(table: OpTable) -> int:
    """The most bytes of inputs, caches and activations that are alive at once."""
    spans: dict[int, list[int]] = {}
    kept = {t.storage for t in table.outputs}
    for tensor in table.inputs:
        spans[tensor.storage] = [0, len(table.ops), tensor.storage_bytes]
    for index, op in enumerate(table.ops):
        for tensor in (*op.reads, *op.writes):
            if tensor.role != "weight":
                span = spans.setdefault(tensor.storage, [index, index, 0])
                span[1] = len(table.ops) if tensor.storage in kept else max(index, span[1])
                span[2] = max(span[2], tensor.storage_bytes)
    changes = [0] * (len(table.ops) + 2)
    for first, last, nbytes in spans.values():
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    alive = most = 0
    for change in changes:
        alive += change
        most = max(most, alive)
    return most


def _dispatch_ns(op: Op, ceilings: Ceilings) -> float:
    figures = {name: figure.value for name, figure in ceilings.dispatch_ns.items()}
    started = [value for name, value in figures.items() if name != "view"]
    fallback = 0.0 if op.kind == "view" else min(started, default=0.0)
    return figures.get(_dispatch_class(op), fallback)


def _dispatch_class(op: Op) -> str:
    name = kinds.base_name(op.op).lower()
    if op.kind == "contraction":
        return "conv" if is_conv(op) else "linear" if name in ("linear", "addmm", "gemm") else "bmm"
    by_kind = {"view": "view", "attention": "sdpa", "recurrent": "linear"}
    by_name = {"layer_norm": "layer_norm", "cat": "cat", "concat": "cat"}
    return by_kind.get(op.kind) or by_name.get(name, "add")
