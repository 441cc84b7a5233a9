"""Histograms of activations in a fixed amount of memory, and the ranges that clip them.

Bins are logarithmic on either side of zero, so that one value a million times larger than the rest leaves the rest
resolved: bins of equal width would put all of it into one. Each sample gives the same positions whatever batch it comes
in, so ranges do not depend on batching.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from compress.data import Array, Split
from compress.quantize.graph import tapped

Clip = Literal["entropy", "percentile", "mse"]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Range = tuple[float, float]

# 2,048 bins over ten decades: neighbours are 1.1 % apart.
BINS, DECADES = 2048, 10
BATCH = 16
VALUES_PER_SAMPLE = 4096
LEVELS = 255
# The share of values that the percentile method keeps; half of the rest is cut on either side.
KEPT = 0.9999
CANDIDATES = 160
SMALLEST_FRACTION = 1e-8
# A range this many times wider than 99.99 % of its values is stretched by outliers.
OUTLIER_RATIO = 100.0


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """counts: (2 BINS + 1,) from the most negative bin over zero to the most positive; low, high: exact extremes."""

    low: float
    high: float
    counts: Counts

    @property
    def magnitude(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def centres(self) -> Floats:
        """The value that stands for each bin: its geometric middle."""
        side = self.magnitude * 10.0 ** (-DECADES + (np.arange(BINS) + 0.5) * DECADES / BINS)
        return np.concatenate([-side[::-1], [0.0], side])


def collect(
    path: Path, split: Split, extremes: Mapping[str, Range], on_batch: Callable[[int, int], None]
) -> dict[str, Histogram]:
    """A histogram of each tensor of `extremes` ({tensor: (low, high)} over the same split), streaming."""
    wanted = {name: max(abs(low), abs(high)) for name, (low, high) in extremes.items()}
    counts = {name: np.zeros(2 * BINS + 1, dtype=np.int64) for name in wanted}
    done = 0
    for found in tapped(path, list(wanted), split, BATCH):
        for name, values in found.items():
            count_(counts[name], values, wanted[name])
        done += BATCH
        on_batch(min(done, len(split)), len(split))
    return {name: Histogram(low=extremes[name][0], high=extremes[name][1], counts=counts[name]) for name in wanted}


def count_(counts: Counts, values: Array, magnitude: float) -> None:
    """Add up to VALUES_PER_SAMPLE values of each sample. values: (n, ...); magnitude: the largest |value| there is."""
    chosen = _spread(np.asarray(values, dtype=np.float32).reshape(len(values), -1)) if np.ndim(values) else values
    flat = np.asarray(chosen, dtype=np.float32).ravel()
    if magnitude <= 0:
        counts[BINS] += flat.size
        return
    with np.errstate(divide="ignore"):
        place = np.floor((np.log10(np.abs(flat) / np.float32(magnitude)) + DECADES) * (BINS / DECADES))
    side = np.clip(place, -1, BINS - 1).astype(np.int64) + 1  # 0: too small to matter
    counts += np.bincount(np.where(flat < 0, BINS - side, BINS + side), minlength=2 * BINS + 1)


def clipped_range(histogram: Histogram, method: Clip) -> Range:
    """(low, high) that `method` clips the tensor to; always holds zero and lies within the exact extremes."""
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    if low == high or not histogram.counts.sum():
        return low, high
    found = METHODS[method](histogram)
    narrow = max(low, min(found[0], 0.0)), min(high, max(found[1], 0.0))
    return narrow if narrow[1] > narrow[0] else (low, high)


def is_stretched(histogram: Histogram) -> bool:
    """Whether outliers make the range OUTLIER_RATIO times wider than nearly all values need."""
    low, high = percentile_range(histogram)
    kept = max(abs(low), abs(high))
    return bool(histogram.counts.sum()) and histogram.magnitude > OUTLIER_RATIO * kept > 0


def percentile_range(histogram: Histogram) -> Range:
    """The range that holds KEPT of the values."""
    shares = np.cumsum(histogram.counts) / histogram.counts.sum()
    cut = (1 - KEPT) / 2
    ends = np.searchsorted(shares, (cut, 1 - cut))
    centres = histogram.centres
    last = len(centres) - 1
    return float(centres[min(ends[0], last)]), float(centres[min(ends[1], last)])


def mse_range(histogram: Histogram) -> Range:
    """The range with the least expected squared error of 8-bit codes: both ends together, then each in turn.

    Inside the range a value is off by step^2 / 12 on average, or by its own square where it rounds to zero; outside by
    its distance to the end.
    """
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    centres, counts = histogram.centres, histogram.counts.astype(np.float64)
    share = _least(list(fractions()), lambda f: _error(centres, counts, low * f, high * f))
    low, high = low * share, high * share
    high = _least([high * f for f in fractions()], lambda end: _error(centres, counts, low, end))
    low = _least([low * f for f in fractions()], lambda end: _error(centres, counts, end, high))
    return low, high


def entropy_range(histogram: Histogram) -> Range:
    """The threshold on |value| whose codes keep most of the distribution: Kullback-Leibler, as in Migacz 2017."""
    best = _least([histogram.magnitude * f for f in fractions()], lambda threshold: _divergence(histogram, threshold))
    return max(histogram.low, -best), min(histogram.high, best)


METHODS: dict[Clip, Callable[[Histogram], Range]] = {
    "entropy": entropy_range,
    "percentile": percentile_range,
    "mse": mse_range,
}


def fractions() -> Floats:
    """Candidates for a narrower end, close together near the full range."""
    near = np.linspace(1.0, 0.1, CANDIDATES // 2)
    return np.concatenate([near, np.geomspace(0.1, SMALLEST_FRACTION, CANDIDATES // 2 + 1)[1:]])


def _spread(rows: Array) -> Array:
    """Every k-th value of each row, k without a common factor with the row, so that no channel is left out."""
    size = rows.shape[1]
    step = max(1, math.ceil(size / VALUES_PER_SAMPLE))
    while math.gcd(step, size) > 1:
        step += 1
    return rows[:, ::step]


def _least(ends: Sequence[float], cost: Callable[[float], float]) -> float:
    """The end of least cost; the widest of equals, for ends come from wide to narrow."""
    costs = [cost(end) for end in ends]
    return float(ends[int(np.argmin(costs))])


def _error(centres: Floats, counts: Floats, low: float, high: float) -> float:
    step = (high - low) / LEVELS
    if step <= 0:
        return float((counts * centres**2).sum())
    inside = np.minimum(centres**2, step**2 / 12)
    outside = np.maximum(centres - high, 0) + np.maximum(low - centres, 0)
    return float((counts * np.where(outside > 0, outside**2, inside)).sum())


def _divergence(histogram: Histogram, threshold: float) -> float:
    """Divergence of the clipped distribution from what its codes tell of it."""
    low, high = max(histogram.low, -threshold), min(histogram.high, threshold)
    centres, counts = histogram.centres, histogram.counts.astype(np.float64)
    step = (high - low) / LEVELS
    inside = (centres >= low) & (centres <= high)
    kept = counts[inside]
    if step <= 0 or not kept.sum():
        return float("inf")
    reference = kept.copy()
    reference[-1] += counts[centres > high].sum()
    reference[0] += counts[centres < low].sum()
    # Zero has a code of its own; other bins of one code share its mass in proportion to their width.
    code = np.where(centres[inside] == 0, -1, np.round((centres[inside] - low) / step)).astype(np.int64) + 1
    width = np.where(kept > 0, np.maximum(np.abs(centres[inside]), 1e-300), 0.0)
    mass = np.bincount(code, kept)
    told = mass[code] * width / np.maximum(np.bincount(code, width)[code], 1e-300)
    p, q = _smoothed(reference), _smoothed(told)
    return float((p * np.log(p / q)).sum())


def _smoothed(counts: Floats) -> Floats:
    """Shares without zeros, so that their ratio exists."""
    shares = counts / counts.sum()
    small = 1e-9
    return np.asarray((shares + small) / (1 + small * len(shares)))
