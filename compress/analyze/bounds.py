"""Times nothing can beat: arithmetic, bytes and the cost of starting ops, each against its ceiling. Pure Python.

time >= max(flops / peak, bytes / bandwidth, floor). Williams et al., CACM 52 (2009), and Wang et al., arXiv 2009.04598,
for the floor. For a whole model each of the three is summed over the ops first, since they may overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from compress.analyze.costs import Cost, Costs
from compress.analyze.rates import roof, usual
from compress.analyze.table import LEVELS
from compress.device.ceilings import MEASURED, Ceilings

Limit = Literal["arithmetic", "bandwidth", "dispatch"]
# Winograd's F(2x2, 3x3) multiplies 2.25 times less than the direct product. Lavin and Gray, arXiv 1509.09308.
FAST_CONV = 2.25


class Span(Protocol):
    """A value with its interval and the n it rests on, as `compress.measure.stats.Interval`."""

    @property
    def value(self) -> float: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...

    @property
    def n(self) -> int: ...


# Roofs measured twice on a quiet machine are this far apart; a time as close as that breaks none.
ROOFS_DIFFER = 0.05


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Lower bounds of one time. memory_ms: by byte level; hard_*: with what caches and fusion may save taken off."""

    compute_ms: float
    memory_ms: dict[str, float]
    floor_ms: float
    hard_memory_ms: float
    hard_floor_ms: float

    def at(self, level: str) -> float:
        """Milliseconds when the bytes of this level move."""
        return max(self.compute_ms, self.memory_ms[level], self.floor_ms)

    @property
    def ms(self) -> float:
        """The lower bound, with compulsory bytes."""
        return self.at("C")

    @property
    def interval_ms(self) -> tuple[float, float]:
        """From compulsory to unfused bytes: the truth of a good runtime lies between."""
        return self.at("C"), self.at("U")

    @property
    def hard_ms(self) -> float:
        """What nothing that runs this graph can beat."""
        return max(self.compute_ms, self.hard_memory_ms, self.hard_floor_ms)

    @property
    def limit(self) -> Limit:
        """Which of the three makes the hard bound."""
        if self.compute_ms == self.hard_ms:
            return "arithmetic"
        return "bandwidth" if self.hard_memory_ms == self.hard_ms else "dispatch"


@dataclass(frozen=True, kw_only=True)
class AboveRoof:
    """A time below its hard bound. wrong: the number to look at first, the ceiling or the count."""

    place: str
    measured_ms: float
    bound_ms: float
    limit: Limit
    wrong: Literal["ceiling", "count"]
    sentence: str


def op_bounds(costs: Costs, ceilings: Ceilings, *, usually: bool = False) -> tuple[Bound, ...]:
    """The bound of every op. usually: with rates that kernels reach rather than roofs; for expectations only."""
    return tuple(_bound([op], costs.resident_bytes, ceilings, usually) for op in costs.ops)


def model_bound(costs: Costs, ceilings: Ceilings) -> Bound:
    """The bound of the whole model."""
    return _bound(costs.ops, costs.resident_bytes, ceilings, usually=False)


def bandwidth_of(costs: Costs, ceilings: Ceilings) -> float:
    """Bytes per second of the level that holds the model: the last cache when half of it is enough, else DRAM."""
    return ceilings.bandwidth(ceilings.level_for(int(costs.resident_bytes)))


def above_roof(measured: Span, bound: Bound, ceilings: Ceilings, place: str, *, conv: bool = False) -> AboveRoof | None:
    """What is wrong when a whole interval lies below the hard bound; None when it does not. Nothing is clipped.

    measured: in ms; conv: much of the work is convolutions, which fast algorithms do with fewer products.
    """
    doubt = ROOFS_DIFFER if ceilings.confidence == "measured" else 0.0
    if measured.high * (1 + doubt) >= bound.hard_ms:
        return None
    wrong = _wrong(bound.hard_ms / measured.high, bound.limit, ceilings, conv)
    reason = {"ceiling": _ceiling_sentence(bound.limit, ceilings), "count": _count_sentence(bound.limit)}[wrong]
    sentence = (
        f"{place}: measured {measured.value:.4g} ms [{measured.low:.4g}, {measured.high:.4g}] (n={measured.n}) is "
        f"below its {bound.limit} bound of {bound.hard_ms:.4g} ms, {bound.hard_ms / measured.value:.3g} times too "
        f"fast; most likely {reason}."
    )
    return AboveRoof(
        place=place,
        measured_ms=measured.value,
        bound_ms=bound.hard_ms,
        limit=bound.limit,
        wrong=wrong,
        sentence=sentence,
    )


def _bound(ops: Sequence[Cost], resident: float, ceilings: Ceilings, usually: bool) -> Bound:
    compute = sum(_compute_s(op, ceilings, usually) for op in ops)
    nbytes = {level: sum(op.total_bytes(level) for op in ops) for level in LEVELS}
    share = ceilings.achievable.bandwidth if usually else 1.0
    bandwidth = ceilings.bandwidth(ceilings.level_for(int(resident))) * share
    return Bound(
        compute_ms=compute * 1e3,
        memory_ms={level: moved / bandwidth * 1e3 for level, moved in nbytes.items()},
        floor_ms=sum(op.floor_ns for op in ops) / 1e6,
        hard_memory_ms=_hard_memory_s(nbytes["C"], resident, ceilings) * 1e3,
        hard_floor_ms=sum(op.hard_floor_ns for op in ops) / 1e6,
    )


def _compute_s(op: Cost, ceilings: Ceilings, usually: bool) -> float:
    rate = usual(ceilings, op.dtype, conv=op.conv) if usually else roof(ceilings, op.dtype)
    return op.flops / rate if rate else 0.0


def _hard_memory_s(nbytes: float, resident: float, ceilings: Ceilings) -> float:
    """A last-level cache may still hold its size in bytes from the run before, whatever the model's size."""
    *caches, dram = ceilings.levels
    held = caches[-1].size_bytes if caches else None
    if not held:
        return nbytes / ceilings.bandwidth(dram.name)
    near = nbytes / ceilings.bandwidth(caches[-1].name)
    far = (nbytes - held) / ceilings.bandwidth(dram.name) if ceilings.level_for(int(resident)) == dram.name else 0.0
    return max(near, far)


def _wrong(excess: float, limit: Limit, ceilings: Ceilings, conv: bool) -> Literal["ceiling", "count"]:
    if limit == "arithmetic" and conv and excess <= FAST_CONV:
        return "count"
    return "ceiling" if ceilings.source == MEASURED or ceilings.contaminated else "count"


def _ceiling_sentence(limit: Limit, ceilings: Ceilings) -> str:
    whose = f"of {ceilings.name} ({ceilings.source})"
    if limit == "dispatch":
        return f"the cost of starting an op {whose} is too high: measure it again"
    return f"the {limit} ceiling {whose} is too low: measure it again"


def _count_sentence(limit: Limit) -> str:
    counted = {"arithmetic": "multiplications", "bandwidth": "bytes", "dispatch": "started ops"}[limit]
    return f"the count of {counted} is too high for what really ran"
