"""Intervals and paired tests. Pure NumPy and the standard library; every function says its source."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# MLPerf LoadGen's early-stopping floor: to claim P99 with 99 % confidence from samples none of which exceeds it,
# n must satisfy 0.99**n <= 0.01.
P99_NEEDS = 459
P95_NEEDS = 90
P10_NEEDS = 50
P50_NEEDS = 7


@dataclass(frozen=True, kw_only=True)
class Interval:
    value: float
    low: float
    high: float
    n: int


def z_of(confidence: float) -> float:
    """One-sided normal quantile."""
    return NormalDist().inv_cdf(confidence)


def wilson(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Two-sided score interval of a share. Wilson, JASA 22 (1927)."""
    z = z_of(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(value=share, low=max(0.0, float(centre - half)), high=min(1.0, float(centre + half)), n=n)


def paired_share_drop_high(lost: float, won: float, n: int, confidence: float = 0.95) -> float:
    """One-sided upper bound of the drop (lost - won) / n between paired shares.

    lost: samples only the baseline got right; won: only the candidate. The score bound of Tango, Statistics in
    Medicine 17 (1998), which keeps its level at small counts, where the Wald bound does not.
    """
    z = z_of(confidence)
    low, high = (lost - won) / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _tango_score(lost, won, n, middle) > -z else (low, middle)
    return high


def paired_share_drop_low(lost: float, won: float, n: int, confidence: float = 0.95) -> float:
    """One-sided lower bound of the drop, by symmetry."""
    return -paired_share_drop_high(won, lost, n, confidence)


def mcnemar_exact(lost: int, won: int) -> float:
    """Two-sided exact p-value of "no change" from the discordant pairs. McNemar, Psychometrika 12 (1947)."""
    from scipy.stats import binomtest

    return float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0


def bootstrap(
    values: Floats, statistic: Callable[[Floats], Floats], *, confidence: float, seed: int = 0, draws: int = 4000
) -> Interval:
    """Percentile interval of a statistic of values (n,). `statistic` maps (draws, n) to (draws,). Efron (1979)."""
    rng = np.random.default_rng(seed)
    estimates = [
        statistic(values[rng.integers(0, len(values), size=(rows, len(values)))])
        for rows in _chunks(draws, len(values))
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(estimates), [tail, 1 - tail])
    return Interval(value=float(statistic(values[None])[0]), low=float(low), high=float(high), n=len(values))


def mean_interval(values: Floats, confidence: float = 0.95) -> Interval:
    return bootstrap(values, lambda rows: rows.mean(axis=-1), confidence=confidence)


def ratio_of_medians(log_ratios: Floats, confidence: float = 0.99) -> Interval:
    """Median speed ratio over blocks, from the log-ratio of each block (n,), with a bootstrap interval."""
    found = bootstrap(log_ratios, lambda rows: np.median(rows, axis=-1), confidence=confidence)
    value, low, high = np.exp([found.value, found.low, found.high])
    return Interval(value=float(value), low=float(low), high=float(high), n=found.n)


def percentile(samples: Floats, q: float, confidence: float = 0.95) -> Interval | None:
    """The q-th percentile of samples (n,) with its order-statistic interval, or None when n cannot support it.

    The interval is exact for any distribution: ranks are binomial(n, q/100). David and Nagaraja, Order Statistics, 7.1.
    """
    from scipy.stats import binom

    n = len(samples)
    if n < needed_samples(q):
        return None
    ordered = np.sort(samples)
    tail = (1 - confidence) / 2
    low = int(binom.ppf(tail, n, q / 100))
    high = int(binom.ppf(1 - tail, n, q / 100))
    value = float(np.percentile(ordered, q))
    return Interval(
        value=value,
        low=min(value, float(ordered[max(low - 1, 0)])),
        high=max(value, float(ordered[min(high, n - 1)])),
        n=n,
    )


def needed_samples(q: float) -> int:
    """Fewest samples from which this tool prints the q-th percentile."""
    return {10: P10_NEEDS, 50: P50_NEEDS, 95: P95_NEEDS, 99: P99_NEEDS}[int(q)]


def sqnr_db(reference: Floats, other: Floats) -> float | None:
    """Signal to quantization noise, 10 log10(sum r^2 / sum (r - o)^2), in dB. None: identical, so without bound."""
    noise = float(np.square(reference - other).sum())
    signal = float(np.square(reference).sum())
    return None if noise == 0 else float(10 * np.log10(max(signal, 1e-300) / noise))


def _tango_score(lost: float, won: float, n: int, delta: float) -> float:
    """Score statistic of H0: drop = delta, negative when the data lie below it."""
    a = 2 * n
    b = -lost - won + (2 * n - lost + won) * delta
    c = -won * delta * (1 - delta)
    p = (np.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * p + delta * (1 - delta))
    distance = lost - won - n * delta
    return (
        float(distance / np.sqrt(variance))
        if variance > 0
        else (0.0 if distance == 0 else float(np.sign(distance)) * np.inf)
    )


def _chunks(draws: int, n: int) -> list[int]:
    """Rows per resampling step so that no step holds more than about 8 million draws."""
    rows = max(1, min(draws, 8_000_000 // max(n, 1)))
    return [rows] * (draws // rows) + ([draws % rows] if draws % rows else [])
