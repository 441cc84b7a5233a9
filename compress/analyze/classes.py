"""Each op in one class, with its time: what the time is spent on. Pure Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from compress.analyze import kinds
from compress.analyze.attribute import attributed, inserted_ms
from compress.analyze.bounds import Bound, Span, op_bounds
from compress.analyze.costs import LEVEL_OF_RUNTIME, Cost, Costs, Runtime, costs_of
from compress.analyze.table import Op, OpTable
from compress.device.ceilings import Ceilings
from compress.errors import InputError

Class = Literal[
    "data-pipeline",
    "overhead",
    "movement",
    "kernel-limited",
    "compute",
    "weight-bandwidth",
    "kv-bandwidth",
    "activation-bandwidth",
    "unattributed",
]
CLASSES: tuple[Class, ...] = get_args(Class)

# An op that costs its start for at least half of its time is overhead.
MOSTLY = 0.5
# The machine idles while an op does less work than this share of its time.
IDLE_BELOW = 0.20
# So far above its bound, an op is held up by its kernel and not by the machine.
FAR_ABOVE_BOUND = 3.0
# Picking rows by index moves data about; looking up a table of weights is what the model is for.
INDEXING = frozenset(
    ("gather", "index", "index_select", "take", "take_along_dim", "masked_select", "gathernd", "gatherelements")
)
CASTING = frozenset(("quantizelinear", "dequantizelinear", "quantize_per_tensor", "quantize_per_channel", "dequantize"))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times of a model. end_to_end_ms: one forward pass of `batch` samples, an `Interval` in ms with its n.

    ops: rows {"module"?, "op"?, "name"?, "time_ms"} of a profile, in the order they ran; empty when there is none;
    ops_estimated: these were corrected for what the profiler cost, so none of them alone can break a bound.
    Raises InputError when a time is not above zero, or the interval does not hold its value.
    """

    runtime: Runtime
    end_to_end_ms: Span
    ops: Sequence[Mapping[str, Any]] = ()
    batch: int = 1
    ops_estimated: bool = False

    def __post_init__(self) -> None:
        whole = self.end_to_end_ms
        if not 0 < whole.low <= whole.value <= whole.high:
            raise InputError(
                "end_to_end_ms", f"{whole.value} in [{whole.low}, {whole.high}] is no time", "Measure again"
            )
        if self.batch < 1 or any(float(row["time_ms"]) < 0 for row in self.ops):
            raise InputError("measured times", "a batch below 1 or a time below 0", "Measure again")


@dataclass(frozen=True, kw_only=True)
class OpTime:
    """One op of the table. class_: what its time is spent on; measured: whether the time is, or the bound gave it."""

    index: int
    class_: Class
    time_ms: float
    measured: bool
    bound: Bound


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Where the time of a step goes. share: by class, summing to 1; level: of bytes that the runtime moves.

    wait_ms: for the loader; unattributed_ms: of the end-to-end time, what belongs to no op of the table;
    inserted_ms: for copies that the runtime inserted between the ops, which are movement; host_ms: that eager torch
    spends between its ops, which is overhead.
    """

    rows: tuple[OpTime, ...]
    share: Mapping[Class, float]
    runtime: Runtime
    level: str
    costs: Costs
    total_ms: float
    wait_ms: float
    unattributed_ms: float
    inserted_ms: float = 0.0
    host_ms: float = 0.0

    def time_ms(self, class_: Class) -> float:
        return self.share.get(class_, 0.0) * self.total_ms


def runtime_of(table: OpTable, measured: Measured | None) -> Runtime:
    """Where the times come from; unmeasured, the front end that made the table says it."""
    if measured is not None:
        return measured.runtime
    return "onnxruntime" if table.source == "onnx" else "torch"


def classify(
    table: OpTable,
    ceilings: Ceilings,
    *,
    measured: Measured | None = None,
    loader_wait_share: float = 0.0,
    overhead: bool = True,
    flat: bool = False,
) -> Shares:
    """Times and classes of all ops. loader_wait_share: of a step, in [0, 1); overhead: whether ops may be called so;
    flat: time was seen not to grow with the batch, so what an op takes beyond its work is its start.

    Raises InputError for a share outside [0, 1).
    """
    if not 0 <= loader_wait_share < 1:
        raise InputError("loader_wait_share", f"{loader_wait_share} is not in [0, 1)", "Give waiting time / step time")
    runtime = runtime_of(table, measured)
    level = LEVEL_OF_RUNTIME[runtime]
    costs = costs_of(table, ceilings, runtime)
    bounds = op_bounds(costs, ceilings)
    times, known, lost, excess = _times(table.ops, bounds, level, measured)
    classes = [
        _class(op, cost, bound, ms, level, overhead, flat)
        for op, cost, bound, ms in zip(table.ops, costs.ops, bounds, times, strict=True)
    ]
    rows = tuple(
        OpTime(index=index, class_=class_, time_ms=times[index], measured=index in known, bound=bounds[index])
        for index, class_ in enumerate(classes)
    )
    moves = min(lost, inserted_ms(measured.ops)) if measured else 0.0
    # Eager torch is in Python between the ops of a profile; without a profile the time is the ops' own.
    host = excess if overhead and runtime == "torch" and known else 0.0
    rest = lost + excess - moves - host
    model_ms = sum(times) + lost + excess
    total = model_ms / (1 - loader_wait_share)
    wait = total - model_ms if loader_wait_share else 0.0
    return Shares(
        rows=rows,
        share=_shares(rows, {"movement": moves, "overhead": host, "unattributed": rest, "data-pipeline": wait}),
        runtime=runtime,
        level=level,
        costs=costs,
        total_ms=total,
        wait_ms=wait,
        unattributed_ms=rest,
        inserted_ms=moves,
        host_ms=host,
    )


def _times(
    ops: Sequence[Op], bounds: Sequence[Bound], level: str, measured: Measured | None
) -> tuple[list[float], set[int], float, float]:
    """Time of every op, which of them are measured, the time of rows that fit no op, and what no row explains.

    Ops without a measured time take their bound, or their part of what the measured ones leave when that is less.
    """
    guessed = [bound.at(level) for bound in bounds]
    if measured is None:
        return guessed, set(), 0.0, 0.0
    given, lost = attributed(ops, measured.ops)
    left = max(0.0, measured.end_to_end_ms.value - sum(given.values()) - lost)
    wanted = sum(ms for index, ms in enumerate(guessed) if index not in given)
    scale = min(1.0, left / wanted) if wanted else 0.0
    times = [given.get(index, ms * scale) for index, ms in enumerate(guessed)]
    return times, set(given), lost, max(0.0, left - wanted * scale)


def _class(op: Op, cost: Cost, bound: Bound, time_ms: float, level: str, overhead: bool, flat: bool) -> Class:
    if overhead and (op.kind == "view" or bound.floor_ms >= MOSTLY * time_ms > 0):
        return "overhead"
    moved = cost.bytes[level]
    cached = moved["kv"] > MOSTLY * sum(moved.values())
    if _is_movement(op):
        return "kv-bandwidth" if cached else "movement"
    work_ms = max(bound.compute_ms, bound.memory_ms["U"])
    if overhead and flat and work_ms < IDLE_BELOW * time_ms:
        return "overhead"
    # The most generous bound, every byte unfused: far above that, only the kernel is left to blame.
    if time_ms > FAR_ABOVE_BOUND * bound.at("U"):
        return "kernel-limited"
    # Nothing else the op has to do takes as long as starting it, however slowly it starts here.
    if overhead and bound.floor_ms > max(bound.compute_ms, bound.memory_ms[level]):
        return "overhead"
    if bound.compute_ms > bound.memory_ms[level]:
        return "compute"
    # An op that fusion leaves without bytes of its own is told by what it moves alone.
    charged = level if any(moved.values()) else "U"
    largest = max(("other", "weight", "kv"), key=lambda tag: _bytes_of(cost, charged, tag))
    by_bytes: dict[str, Class] = {"weight": "weight-bandwidth", "kv": "kv-bandwidth", "other": "activation-bandwidth"}
    return by_bytes[largest]


def _is_movement(op: Op) -> bool:
    name = kinds.base_name(op.op).lower()
    if op.kind == "gather":
        return name in INDEXING and not (op.inputs and op.inputs[0].role == "weight")
    return op.kind in ("move", "view") or name in CASTING


def _bytes_of(cost: Cost, level: str, tag: str) -> float:
    moved = cost.bytes[level]
    return moved[tag] if tag != "other" else moved["act"] + moved["io"] + moved["move"]


def _shares(rows: Sequence[OpTime], beside: Mapping[Class, float]) -> dict[Class, float]:
    """beside: milliseconds by class that belong to no op."""
    sums: dict[Class, float] = {name: beside.get(name, 0.0) for name in CLASSES}
    for row in rows:
        sums[row.class_] += row.time_ms
    total = sum(sums.values())
    return {name: ms / total for name, ms in sums.items()} if total else {}
