"""From kernel times of single sites to the time of the whole file. Pure NumPy.

T_new = T - sum t_old + sum t_new, with every t in the place it has in the file: t_new = t_old * r, where r is the
ratio of the two kernels timed side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compress.measure.kernels import CUT_OFF_MS
from compress.measure.stats import Interval, ratio_of_medians

# No kernel is taken to be faster than this: below it the profiler's own cost decides.
SHORTEST_MS = 2e-4
# Repeats of one probe agree within this share; an interval is never taken to be narrower.
REPEATABLE = 0.03


@dataclass(frozen=True, kw_only=True)
class Change:
    """Sites of the file that one pair of kernels speaks for. now_ms: their time now, all together; ratio: new / old."""

    now_ms: float
    ratio: Interval


@dataclass(frozen=True, kw_only=True)
class Whole:
    """The file as it runs now. total_ms: a call; kernels_ms: by kernel name, without the profiler's cost."""

    total_ms: float
    spread: float
    kernels_ms: Mapping[str, float]


def whole_of(calls_ms: Sequence[float], nodes: Sequence[Mapping[str, Any]], floor_ms: float) -> Whole:
    """calls_ms: whole calls without a profiler; nodes: {name, time_ms} with it, whose cost per node is floor_ms."""
    total = float(np.median(calls_ms))
    spread = float(np.subtract(*np.percentile(calls_ms, [75, 25])) / total / np.sqrt(len(calls_ms)))
    kernels = {str(node["name"]): max(0.0, float(node["time_ms"]) + CUT_OFF_MS - floor_ms) for node in nodes}
    # The kernels cannot take longer than the call they are in; a busy moment while profiling says they do.
    shrink = min(1.0, total / sum(kernels.values())) if any(kernels.values()) else 1.0
    return Whole(total_ms=total, spread=spread, kernels_ms={name: ms * shrink for name, ms in kernels.items()})


def kernel_ratio(answer: Mapping[str, Any], floor_ms: float, copies: int) -> Interval:
    """New over old from the worker's answer: blocks of both sides, the profiler's cost taken off every node."""
    sides = [answer["a"], answer["b"]]
    old, new = (
        np.maximum(np.array(side["blocks_ms"]) - floor_ms * side["nodes"], SHORTEST_MS * copies) for side in sides
    )
    return repeatable(ratio_of_medians(np.log(new / old)))


def repeatable(found: Interval) -> Interval:
    """The interval, at least as wide as repeats of a probe differ."""
    low, high = min(found.low, found.value / (1 + REPEATABLE)), max(found.high, found.value * (1 + REPEATABLE))
    return Interval(value=found.value, low=low, high=high, n=found.n)


def speedup(whole: Whole, changes: Sequence[Change], rest: tuple[float, float] = (1.0, 1.0)) -> Interval:
    """Time now over time afterwards.

    rest: what the other kernels' time is multiplied by, as expected and at worst. The ends of the interval take every
    pair at its end at once, so they are wider than the chance that all err the same way.
    """
    others = max(0.0, sum(whole.kernels_ms.values()) - sum(change.now_ms for change in changes))
    between = max(0.0, whole.total_ms - sum(whole.kernels_ms.values()))

    def after(end: str, rest_factor: float) -> float:
        changed = sum(change.now_ms * float(getattr(change.ratio, end)) for change in changes)
        return between + others * rest_factor + changed

    value, best, worst = after("value", rest[0]), after("low", rest[0]), after("high", rest[1])
    n = min((change.ratio.n for change in changes), default=0)
    found = [whole.total_ms / max(ms, SHORTEST_MS) for ms in (value, worst * (1 + whole.spread), best)]
    return Interval(value=found[0], low=found[1], high=found[2] * (1 + whole.spread), n=n)
