"""Extremes and means of activations channel by channel, streaming over a split."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compress.data import Array, Split
from compress.quantize.graph import tapped

Floats = NDArray[np.float64]
BATCH = 16


@dataclass(frozen=True, kw_only=True)
class ChannelStatistics:
    """low, high, mean: (channels,) over every value seen of a channel."""

    low: Floats
    high: Floats
    mean: Floats

    @property
    def magnitude(self) -> Floats:
        return np.maximum(np.abs(self.low), np.abs(self.high))


def channel_statistics(path: Path, split: Split, axes: Mapping[str, int]) -> dict[str, ChannelStatistics]:
    """Statistics of each tensor of `axes` ({tensor: its channel axis}). Tensors without a single value are left out."""
    sums: dict[str, list[Floats]] = {}
    for found in tapped(path, list(axes), split, BATCH):
        for name, values in found.items():
            rows = channels_first(values, axes[name])
            if rows.shape[1]:
                sums[name] = _merged(sums.get(name), rows)
    return {
        name: ChannelStatistics(low=low, high=high, mean=total / count)
        for name, (low, high, total, count) in sums.items()
    }


def channels_first(values: Array, axis: int) -> Array:
    """(n, ..., channels, ...) as (channels, everything else)."""
    moved = np.moveaxis(values, axis, 0)
    return moved.reshape(len(moved), -1)


def _merged(known: list[Floats] | None, rows: Array) -> list[Floats]:
    count = np.array(float(rows.shape[1]))
    low, high = rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    total = rows.sum(axis=1, dtype=np.float64)
    if known is None:
        return [low, high, total, count]
    return [np.minimum(known[0], low), np.maximum(known[1], high), known[2] + total, known[3] + count]
