"""Probe the methods that a file has a place for, and put what they gave beside the predictions."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.data import Array
from compress.errors import CompressError
from compress.measure.isolated import Bench
from compress.measure.stats import Interval
from compress.probe.probe import ProbeResult, probe
from compress.probe.sites import Net
from compress.probe.task import Nodes
from compress.stages.question import Say

# Seconds for all probes of a file.
BUDGET = 60.0
# A share of the time below which a probe says little about the whole.
LITTLE_COVERED = 0.5
# What is probed, and the prediction each belongs to, the quickest and the most telling first.
PREDICTIONS = {
    "half-depth": "half-depth student",
    "batch-8": "batch 8",
    "int8": "int8 W8A8",
    "dynamic-int8": "int8 dynamic",
    "weights-int8": "int8 weight-only",
    "weights-int4": "int4 weight-only g128",
    "prune-50": "prune 50%",
    "prune-25": "prune 25%",
    "prune-75": "prune 75%",
}
# A student of half the width has the shapes of the model with half its channels pruned.
SAME_AS = {"half-width student": "prune 50%"}
OF_PRODUCTS = ("dynamic-int8", "weights-int8", "weights-int4")


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Results by the name of the prediction they belong to."""

    results: Mapping[str, ProbeResult]

    @property
    def spans(self) -> dict[str, Interval]:
        """Speed-ups of those that found something to time."""
        return {name: one.speedup for name, one in self.results.items() if one.speedup is not None}


NO_PROBES = Probes(results={})


def probe_file(path: Path, feeds: dict[str, Array], bench: Bench, nodes: Nodes, say: Say) -> Probes:
    """Probe every method that applies, in about BUDGET seconds. feeds: one batch (n, ...); nodes: the file's profile.

    A probe that the runtime refuses has a note in place of a speed-up. Raises InputError when the file cannot be read.
    """
    names = _that_apply(path, feeds)
    started = time.monotonic()
    results: dict[str, ProbeResult] = {}
    for place, name in enumerate(names):
        left = BUDGET - (time.monotonic() - started)
        say(f"probing {name} ({place + 1} of {len(names)}, {max(0.0, left):.0f} s left)")
        results[PREDICTIONS[name]] = _probed(path, name, feeds, bench, left / (len(names) - place), nodes)
    for twin, name in SAME_AS.items():
        results[twin] = results[name]
    return Probes(results=results)


def with_probes(analysis: dict[str, Any], probes: Probes) -> dict[str, Any]:
    """The document with the covered share beside each probed speed-up, and all that was probed under `probes`."""
    if not probes.results:
        return analysis
    results = [probe_row(name, one) for name, one in probes.results.items()]
    covered = {name: one.covered_share for name, one in probes.results.items() if one.speedup is not None}
    rows = [row | {"probe_covered_share": covered.get(row["name"])} for row in analysis["stages"]]
    return analysis | {"stages": rows, "probes": results}


def probe_row(prediction: str, one: ProbeResult) -> dict[str, Any]:
    """One result as plain data."""
    return {"prediction": prediction, **one.as_dict()}


def _that_apply(path: Path, feeds: dict[str, Array]) -> list[str]:
    net = Net(path, feeds)
    batch = next((len(values) for values in feeds.values() if values.ndim), 1)
    left_out = {*(() if net.linear_heavy else OF_PRODUCTS), *(() if batch == 1 else ("batch-8",))}
    return [name for name in PREDICTIONS if name not in left_out]


def _probed(path: Path, name: str, feeds: dict[str, Array], bench: Bench, seconds: float, nodes: Nodes) -> ProbeResult:
    try:
        return probe(path, name, feeds, bench, min(seconds, BUDGET / 4), nodes)
    except CompressError as error:
        return ProbeResult(method=name, speedup=None, covered_share=0.0, seconds=0.0, note=f"not probed: {error}")
