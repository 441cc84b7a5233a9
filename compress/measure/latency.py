"""Paired timing: ABBA blocks of two callables in one process, after an A/A run that says whether the machine is quiet.

Comparing separate runs raises a false alarm one time in four on a shared machine; interleaved blocks cancel what both
models suffer alike. The decision figure is the median over blocks of the ratio of block medians.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compress.measure.stats import Floats, Interval, ratio_of_medians

Call = Callable[[], object]
Clock = Callable[[], int]

WARM_UP_CALLS = 20
WARM_UP_SECONDS = 3.0
WARM_UP_DRIFT = 0.05
# A block side shorter than this is dominated by the clock and the scheduler.
SIDE_SECONDS = 0.004
CLEAN_HALF_WIDTH = 0.03
CLEAN_EFFECT = 0.025


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure: at least `min_blocks`, then until `seconds` are used or the interval is narrow enough.

    cpu_time: count the processor time of this thread, not what passed. Others on the machine interrupt long calls and
    spare short ones, which makes the faster file look better still. Only where the model runs on this thread alone.
    """

    min_blocks: int = 30
    max_blocks: int = 400
    seconds: float = 3.0
    half_width: float = 0.01
    min_calls: int = 0
    cpu_time: bool = False

    @property
    def clock(self) -> Clock:
        return time.thread_time_ns if self.cpu_time else time.perf_counter_ns


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """`ratio`: time of A over time of B, i.e. how many times faster B is. a_ms, b_ms: every timed call (n,)."""

    ratio: Interval
    a_ms: Floats = field(repr=False)
    b_ms: Floats = field(repr=False)

    @property
    def half_width(self) -> float:
        """Relative half width of the interval."""
        return float(np.log(self.ratio.high / self.ratio.low) / 2)

    @property
    def clean(self) -> bool:
        """For an A/A run: no effect where there is none, known closely enough."""
        no_effect = self.ratio.low <= 1 <= self.ratio.high or abs(self.ratio.value - 1) <= CLEAN_EFFECT
        return no_effect and self.half_width <= CLEAN_HALF_WIDTH


def compare(a: Call, b: Call, plan: Plan) -> Comparison:
    """Time `a` and `b` in interleaved ABBA blocks."""
    calls = max(calls_per_side(a), calls_per_side(b))
    log_ratios: list[float] = []
    a_ms: list[float] = []
    b_ms: list[float] = []
    started = time.perf_counter()
    while not _enough(log_ratios, len(b_ms), time.perf_counter() - started, plan):
        first = _timed(a, calls, plan.clock)
        middle = _timed(b, 2 * calls, plan.clock)
        last = _timed(a, calls, plan.clock)
        log_ratios.append(float(np.log(np.median(first + last) / np.median(middle))))
        a_ms += first + last
        b_ms += middle
    return Comparison(ratio=ratio_of_medians(np.array(log_ratios)), a_ms=np.array(a_ms), b_ms=np.array(b_ms))


def widen(ratio: Interval, a_a: Comparison) -> Interval:
    """The interval with what the A/A run found in nothing: its effect, and after an unclean run its noise."""
    effect = abs(float(np.log(a_a.ratio.value)))
    factor = float(np.exp(effect if a_a.clean else 2 * max(a_a.half_width, effect)))
    return Interval(value=ratio.value, low=ratio.low / factor, high=ratio.high * factor, n=ratio.n)


def warm_up(call: Call) -> float:
    """Call until two windows in a row agree within 5 %. Returns the first call's milliseconds, reported apart."""
    first = _timed(call, 1)[0]
    started = time.perf_counter()
    window = _timed(call, WARM_UP_CALLS // 2)
    while time.perf_counter() - started < WARM_UP_SECONDS:
        previous, window = window, _timed(call, WARM_UP_CALLS // 2)
        if abs(np.median(window) / np.median(previous) - 1) < WARM_UP_DRIFT:
            break
    return first


def calls_per_side(call: Call) -> int:
    """Calls that fill one side of a block, at least two so that a block has four of each model."""
    once = float(np.median(_timed(call, 5))) / 1e3
    return max(2, min(200, int(np.ceil(SIDE_SECONDS / once))))


def _enough(log_ratios: list[float], calls: int, elapsed: float, plan: Plan) -> bool:
    blocks = len(log_ratios)
    if blocks < plan.min_blocks:
        return False
    if blocks >= plan.max_blocks or elapsed >= plan.seconds:
        return calls >= plan.min_calls or elapsed >= 4 * plan.seconds
    if calls < plan.min_calls or blocks % 10:
        return False
    interval = ratio_of_medians(np.array(log_ratios))
    return float(np.log(interval.high / interval.low) / 2) <= plan.half_width


def _timed(call: Call, calls: int, clock: Clock | None = None) -> list[float]:
    """Milliseconds of each call; at least a nanosecond, which a coarse clock may not see."""
    found, now = [], clock or time.perf_counter_ns
    for _ in range(calls):
        start = now()
        call()
        found.append(max(1, now() - start) / 1e6)
    return found
