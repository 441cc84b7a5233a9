"""Gates: pass, fail or undecided, from paired figures with intervals. Pure arithmetic, no models."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compress.candidate import GateResult, Outcome, Value
from compress.errors import GateError
from compress.measure import stats
from compress.metrics import Metric
from compress.recipe.spec import Gate

CONFIDENCE = 0.95
MOST_SAMPLES = 10_000_000


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Scores (n,) of the baseline and of the candidate on the same samples of one split."""

    split: str
    baseline: NDArray[np.float64]
    candidate: NDArray[np.float64]


def check_baseline(metric: Metric, scores: NDArray[np.float64], name: str) -> None:
    """Raise GateError when the baseline cannot be told from a model that knows nothing: gates would mean nothing."""
    if metric.chance is None:
        return
    interval = score_interval(scores)
    edge = interval.low if metric.direction == "higher" else interval.high
    if metric.sign * (edge - metric.chance) <= 0:
        found = f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}] (n={interval.n})"
        fact = f"{metric.name} of the baseline is {found}, chance is {metric.chance:.4f}"
        raise GateError(name, fact, "Check weights, labels and preprocessing: a drop from here would mean nothing")


def score_interval(scores: NDArray[np.float64]) -> stats.Interval:
    """Mean score with a 95 % interval: Wilson for 0/1 scores, bootstrap otherwise."""
    if is_binary(scores):
        return stats.wilson(float(scores.sum()), len(scores))
    return stats.mean_interval(scores)


def is_binary(scores: NDArray[np.float64]) -> bool:
    return bool(np.isin(scores, (0.0, 1.0)).all())


def judge_drop(gate: Gate, metric: Metric, paired: Paired, confidence: float = CONFIDENCE) -> GateResult:
    """The accuracy gate: one-sided bound of the paired drop against the limit. confidence: of each bound."""
    baseline_value = float(paired.baseline.mean())
    relative = gate.max_drop is None
    allowed = gate.max_relative_drop if gate.max_drop is None else gate.max_drop
    if allowed is None:
        raise ValueError(f"the gate on {gate.metric} limits no drop")
    limit = abs(baseline_value) * allowed if gate.max_drop is None else allowed
    drops = metric.sign * (paired.baseline - paired.candidate)
    low, high, note = _drop_bounds(paired, metric, drops, confidence)
    value = float(drops.mean())
    outcome: Outcome = "pass" if high <= limit else "fail" if low > limit else "undecided"
    needed = (
        _needed_samples(drops, limit, confidence, binary=is_binary(paired.baseline) and is_binary(paired.candidate))
        if outcome == "undecided"
        else None
    )
    scale = abs(baseline_value) or 1.0
    shown = (value / scale, low / scale, high / scale) if relative else (value, low, high)
    return GateResult(
        metric=gate.metric,
        limit="max_relative_drop" if relative else "max_drop",
        threshold=allowed,
        value=shown[0],
        low=shown[1],
        high=shown[2],
        outcome=outcome,
        needed_n=needed,
        note=f"paired on {len(drops)} samples of {paired.split}: {note}",
    )


def judge_value(gate: Gate, value: Value | None) -> GateResult:
    """A gate on a figure with an interval, or on an exact one (no interval)."""
    limit = "min" if gate.min is not None else "max"
    threshold = gate.min if gate.min is not None else gate.max
    if threshold is None:
        raise ValueError(f"the gate on {gate.metric} bounds no value")
    if value is None or value.value is None:
        note = "not measured" if value is None else value.note or "not measured"
        return GateResult(
            metric=gate.metric,
            limit=limit,
            threshold=threshold,
            value=None,
            low=None,
            high=None,
            outcome="undecided",
            note=note,
        )
    low, high = _ends(value, value.value)
    sign = 1 if limit == "min" else -1
    worst, best = (low, high) if sign > 0 else (high, low)
    outcome: Outcome = (
        "pass" if sign * (worst - threshold) >= 0 else "fail" if sign * (best - threshold) < 0 else "undecided"
    )
    needed = _needed_blocks(value, threshold) if outcome == "undecided" else None
    return GateResult(
        metric=gate.metric, limit=limit, threshold=threshold, value=value.value, low=value.low, high=value.high,
        outcome=outcome, needed_n=needed, note=_batch_note(value),
    )  # fmt: skip


def worst_of(gate: Gate, values: Sequence[Value]) -> Value | None:
    """Of one figure at several batch sizes, the one hardest for the gate: a promise holds at every batch size."""
    worst: tuple[float, Value] | None = None
    for value in values:
        if value.value is None:
            return value
        low, high = _ends(value, value.value)
        rank = low if gate.min is not None else -high
        if worst is None or rank < worst[0]:
            worst = rank, value
    return None if worst is None else worst[1]


def _ends(value: Value, middle: float) -> tuple[float, float]:
    """The interval of a value; an exact one is its own interval."""
    return (middle if value.low is None else value.low), (middle if value.high is None else value.high)


def outcome_of(results: Sequence[GateResult], accept_undecided: Collection[int] = ()) -> Outcome:
    """fail beats undecided beats pass. `accept_undecided`: positions of gates whose recipe says `undecided: accept`."""
    outcomes = [
        "pass" if result.outcome == "undecided" and i in accept_undecided else result.outcome
        for i, result in enumerate(results)
    ]
    if "fail" in outcomes:
        return "fail"
    return "undecided" if "undecided" in outcomes else "pass"


def accepted(gates: Sequence[Gate]) -> set[int]:
    return {i for i, gate in enumerate(gates) if gate.undecided == "accept"}


def sentence(result: GateResult) -> str:
    """One gate in words: `speedup 2.05 [1.98, 2.11], at least 1.5: pass`."""
    asked = {
        "min": "at least",
        "max": "at most",
        "max_drop": "drop at most",
        "max_relative_drop": "relative drop at most",
    }[result.limit]
    if result.value is None:
        return f"{result.metric} {asked} {result.threshold:g}: undecided ({result.note})"
    interval = "" if result.low is None else f" [{result.low:.4g}, {result.high:.4g}]"
    what = f"{result.metric} drop" if "drop" in result.limit else result.metric
    needed = f", about n={result.needed_n} would decide" if result.needed_n else ""
    return f"{what} {result.value:.4g}{interval}, {asked} {result.threshold:g}: {result.outcome}{needed}"


def _drop_bounds(
    paired: Paired, metric: Metric, drops: NDArray[np.float64], confidence: float
) -> tuple[float, float, str]:
    if is_binary(paired.baseline) and is_binary(paired.candidate):
        lost, won = int((drops > 0).sum()), int((drops < 0).sum())
        n = len(drops)
        low = stats.paired_share_drop_low(lost, won, n, confidence)
        high = stats.paired_share_drop_high(lost, won, n, confidence)
        return low, high, f"{lost} lost, {won} won, McNemar p={stats.mcnemar_exact(lost, won):.3g}"
    interval = stats.mean_interval(drops, confidence=2 * confidence - 1)
    return interval.low, interval.high, f"{metric.name} {metric.direction} is better, paired bootstrap"


def _needed_samples(drops: NDArray[np.float64], limit: float, confidence: float, *, binary: bool) -> int | None:
    """How many samples would decide, if the rates stayed as they are. None: the drop sits on the limit."""
    n = len(drops)
    mean, spread = float(drops.mean()), float(drops.std())
    if not binary:
        gap = abs(limit - mean)
        needed = (stats.z_of(confidence) * spread / gap) ** 2 if gap > 0 else np.inf
        return int(np.ceil(needed)) if needed < MOST_SAMPLES else None
    lost, won = float((drops > 0).mean()), float((drops < 0).mean())

    def decided(size: int) -> bool:
        if mean <= limit:
            return stats.paired_share_drop_high(lost * size, won * size, size, confidence) <= limit
        return stats.paired_share_drop_low(lost * size, won * size, size, confidence) > limit

    low, high = n, n
    while not decided(high):
        low, high = high, high * 2
        if high > MOST_SAMPLES:
            return None
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def _needed_blocks(value: Value, threshold: float) -> int | None:
    """Blocks that would decide, if the interval shrinks with the root of their number."""
    if value.value is None or value.low is None or value.high is None or value.value == threshold:
        return None
    half = (value.value - value.low) if value.value > threshold else (value.high - value.value)
    needed = int(np.ceil(value.n * (half / abs(value.value - threshold)) ** 2))
    return needed if needed < MOST_SAMPLES else None


def _batch_note(value: Value) -> str:
    parts = [f"batch {value.batch}" if value.batch else "", value.note]
    return ", ".join(part for part in parts if part)
