"""Paired timing on a clock of our own: what is found must be what was put in."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from compress.measure import latency
from compress.measure.latency import Comparison, Plan, calls_per_side, compare, warm_up, widen
from compress.measure.stats import Interval


class Clock:
    """Time that passes only when a model runs."""

    def __init__(self) -> None:
        self.now_ns = 0

    def model(self, milliseconds: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.now_ns += round(1e6 * milliseconds())

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(latency.time, "perf_counter_ns", lambda: clock.now_ns)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: clock.now_ns / 1e9)
    return clock


def noisy(mean: float, spread: float, seed: int) -> Callable[[], float]:
    rng = np.random.default_rng(seed)
    return lambda: mean * float(np.exp(rng.normal(0, spread)))


def comparison(value: float, low: float, high: float) -> Comparison:
    return Comparison(ratio=Interval(value=value, low=low, high=high, n=30), a_ms=np.ones(1), b_ms=np.ones(1))


def test_a_model_twice_as_fast_is_found_twice_as_fast(clock: Clock):
    found = compare(clock.model(noisy(2.0, 0.1, 1)), clock.model(noisy(1.0, 0.1, 2)), Plan())
    assert found.ratio.low <= 2.0 <= found.ratio.high
    assert found.ratio.value == pytest.approx(2.0, rel=0.03)
    assert np.median(found.a_ms) == pytest.approx(2.0, rel=0.05)
    assert np.median(found.b_ms) == pytest.approx(1.0, rel=0.05)


def test_a_machine_that_slows_down_does_not_change_the_ratio(clock: Clock):
    def drifting(milliseconds: float) -> Callable[[], float]:
        return lambda: milliseconds * (1 + clock.now_ns / 1e9)  # twice as slow after one second

    found = compare(clock.model(drifting(2.0)), clock.model(drifting(1.0)), Plan())
    assert found.ratio.value == pytest.approx(2.0, rel=0.01)


def test_single_stalls_do_not_change_the_ratio(clock: Clock):
    def stalling(milliseconds: float, every: int) -> Callable[[], float]:
        numbers: Iterator[int] = itertools.count(1)
        return lambda: milliseconds * (50 if next(numbers) % every == 0 else 1)

    found = compare(clock.model(stalling(2.0, 23)), clock.model(stalling(1.0, 29)), Plan())
    assert found.ratio.low <= 2.0 <= found.ratio.high
    assert found.ratio.value == pytest.approx(2.0, rel=0.02)
    assert found.b_ms.max() == pytest.approx(50.0)  # stalls stay in the samples: P99 must see them


def test_processor_time_is_blind_to_what_others_take(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    """A scheduler that interrupts every call beyond 1 ms for 10 ms makes 2 ms : 0.5 ms look like 12 : 0.5."""
    busy = {"ns": 0}

    def model(milliseconds: float) -> Callable[[], None]:
        def call() -> None:
            busy["ns"] += round(1e6 * milliseconds)
            clock.now_ns += round(1e6 * (milliseconds + (10 if milliseconds > 1 else 0)))

        return call

    monkeypatch.setattr(latency.time, "thread_time_ns", lambda: busy["ns"])
    assert compare(model(2.0), model(0.5), Plan()).ratio.value == pytest.approx(24)
    found = compare(model(2.0), model(0.5), Plan(cpu_time=True))
    assert found.ratio.value == pytest.approx(4)
    assert np.median(found.a_ms) == pytest.approx(2)


def test_a_model_against_itself_is_clean_and_no_different(clock: Clock):
    alarms = 0
    for seed in range(20):
        found = compare(clock.model(noisy(1.0, 0.05, seed)), clock.model(noisy(1.0, 0.05, 100 + seed)), Plan())
        assert found.clean
        alarms += not found.ratio.low <= 1 <= found.ratio.high
    assert alarms <= 2  # a 99 % interval


def test_a_noisy_machine_is_not_clean(clock: Clock):
    plan = Plan(seconds=0.1)
    found = compare(clock.model(noisy(1.0, 0.8, 1)), clock.model(noisy(1.0, 0.8, 2)), plan)
    assert found.half_width > latency.CLEAN_HALF_WIDTH
    assert not found.clean


@pytest.mark.parametrize(
    ("value", "low", "high", "clean"),
    [
        (1.00, 0.99, 1.01, True),
        (1.02, 1.01, 1.03, True),  # an effect, but too small to matter
        (1.05, 1.04, 1.06, False),
        (0.95, 0.94, 0.96, False),
        (1.00, 0.95, 1.05, False),
    ],
)
def test_clean_means_no_effect_known_closely(value: float, low: float, high: float, clean: bool):
    assert comparison(value, low, high).clean is clean


def test_an_interval_is_widened_by_what_an_unclean_self_comparison_shows():
    ratio = Interval(value=2.0, low=1.9, high=2.1, n=40)
    assert widen(ratio, comparison(1.0, 0.99, 1.01)) == ratio
    shifted, wide = widen(ratio, comparison(1.1, 1.09, 1.11)), widen(ratio, comparison(1.0, 0.8, 1.25))
    assert (shifted.low, shifted.high) == pytest.approx((1.9 / 1.1**2, 2.1 * 1.1**2))
    assert (wide.low, wide.high) == pytest.approx((1.9 / 1.25**2, 2.1 * 1.25**2))
    assert shifted.value == wide.value == 2.0
    faster_first = widen(ratio, comparison(1 / 1.1, 1 / 1.11, 1 / 1.09))
    assert (faster_first.low, faster_first.high) == pytest.approx((shifted.low, shifted.high))


def test_measuring_goes_on_until_the_plan_is_satisfied(clock: Clock):
    steady = clock.model(lambda: 1.0)
    assert compare(steady, steady, Plan(min_blocks=30)).ratio.n == 30  # at once as narrow as asked
    assert len(compare(steady, steady, Plan(min_blocks=30, min_calls=470)).b_ms) >= 470
    rough = Plan(seconds=0.5, half_width=0.0)
    before = clock.now_ns
    compare(clock.model(noisy(1.0, 0.3, 1)), clock.model(noisy(1.0, 0.3, 2)), rough)
    assert 0.5 <= (clock.now_ns - before) / 1e9 <= 0.7
    capped = Plan(seconds=1e9, half_width=0.0, max_blocks=50)
    assert compare(clock.model(noisy(1.0, 0.3, 1)), clock.model(noisy(1.0, 0.3, 2)), capped).ratio.n == 50


@pytest.mark.parametrize(("milliseconds", "calls"), [(100.0, 2), (4.0, 2), (1.0, 4), (0.5, 8), (0.001, 200)])
def test_a_side_of_a_block_is_long_enough_for_the_clock(clock: Clock, milliseconds: float, calls: int):
    assert calls_per_side(clock.model(lambda: milliseconds)) == calls


def test_a_clock_too_coarse_to_see_a_call_breaks_nothing(clock: Clock):
    found = compare(clock.model(lambda: 0.0), clock.model(lambda: 0.0), Plan(seconds=0.0))
    assert found.ratio.value == 1.0
    assert np.isfinite(found.half_width)


def test_warming_up_ends_when_two_windows_agree_and_tells_the_first_call(clock: Clock):
    times = itertools.chain([80.0], np.linspace(9.0, 1.0, 30), itertools.repeat(1.0))
    calls = 0

    def call() -> float:
        nonlocal calls
        calls += 1
        return float(next(times))

    assert warm_up(clock.model(call)) == 80.0
    assert 31 <= calls <= 61
    before = clock.now_ns
    warm_up(clock.model(lambda: 1.0 + clock.now_ns / 1e8))  # never settles
    assert (clock.now_ns - before) / 1e9 >= latency.WARM_UP_SECONDS
