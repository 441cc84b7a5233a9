"""The float file made easier to quantize, its function unchanged: equalised or smoothed, and checked."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from compress.data import Split
from compress.device.runtime import open_session
from compress.quantize.equalize import Equalised, clip_inputs, equalize_, find_pairs
from compress.quantize.graph import load_graph, save_graph
from compress.quantize.smooth import smooth_, smooth_inputs
from compress.quantize.statistics import channel_statistics

# Rescaling in float32 moves outputs by rounding only; more than this and a Clip was reached.
TOLERANCE = 1e-4
CHECKED_SAMPLES = 128


def prepare(source: Path, target: Path, how: Literal["equalize", "smooth"], calibration: Split) -> dict[str, Any]:
    """Write the prepared float file. Returns changed (whether there was anything to do), remarks, max_change."""
    return (_equalised if how == "equalize" else _smoothed)(source, target, calibration)


def largest_change(source: Path, other: Path, split: Split) -> float:
    """Largest change of an output over the samples, relative to the largest output."""
    feeds, _ = split.read(np.arange(min(CHECKED_SAMPLES, len(split))))
    before, after = (open_session(path).run(None, feeds) for path in (source, other))
    pairs = [
        (np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)) for a, b in zip(before, after, strict=True)
    ]
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in pairs)


def _equalised(source: Path, target: Path, calibration: Split) -> dict[str, Any]:
    """With Clips where the function stays the same on samples whose statistics were not used, without them if not."""
    half = calibration.take(max(1, len(calibration) // 2))
    rest = Split(calibration.name, calibration.source, calibration.indices[::-1], calibration.origin)
    graph = load_graph(source)
    pairs, _ = find_pairs(graph)
    done = equalize_(graph, channel_statistics(source, half, clip_inputs(pairs)))
    save_graph(graph, target)
    change, note = largest_change(source, target, rest), ""
    if change > TOLERANCE:
        note = f"pairs with a Clip between them left alone: it is reached (outputs would change by {change:.1e})"
        graph = load_graph(source)
        done = equalize_(graph, None)
        save_graph(graph, target)
        change = largest_change(source, target, rest)
    remarks = [_told(done), note]
    return {"changed": bool(done.pairs), "remarks": [text for text in remarks if text], "max_change": change}


def _told(done: Equalised) -> str:
    if not done.pairs:
        why = f": {'; '.join(done.refused[:3])}" if done.refused else ""
        return f"no pair of convolutions can be equalised{why}"
    left = f"; {len(done.refused)} left alone ({done.refused[0]})" if done.refused else ""
    spread = f"channels' spread {done.spread_before:.1f} -> {done.spread_after:.1f}"
    return f"{len(done.pairs)} pairs of convolutions equalised, {spread}{left}"


def _smoothed(source: Path, target: Path, calibration: Split) -> dict[str, Any]:
    graph = load_graph(source)
    done = smooth_(graph, channel_statistics(source, calibration, smooth_inputs(graph)))
    save_graph(graph, target)
    changed = bool(done.folded or done.inserted)
    remark = (
        f"outliers moved into weights at {len(done.folded + done.inserted)} places, {len(done.inserted)} with a Mul"
        if changed
        else f"no activation has outlying channels: {'; '.join(done.left[:2])}"
    )
    return {"changed": changed, "remarks": [remark], "max_change": largest_change(source, target, calibration)}
