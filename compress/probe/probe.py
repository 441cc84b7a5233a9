"""What a method would give on this machine, from seconds of timing its kernels on the model's own shapes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.data import Array
from compress.measure import isolated
from compress.measure.stats import Interval, ratio_of_medians
from compress.probe import replaced, rewritten
from compress.probe.depth import removable_share
from compress.probe.estimate import repeatable
from compress.probe.methods import METHODS, Kind, Method
from compress.probe.task import Found, Nodes, Task

__all__ = ["METHODS", "ProbeResult", "graph_mode", "probe"]


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """speedup: over the float file, per sample; None where the method finds nothing to change.

    covered_share: of the file's time, what the figure speaks for; the rest is taken to stay as it is.
    """

    method: str
    speedup: Interval | None
    covered_share: float
    seconds: float
    note: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def probe(
    path: Path,
    method: str,
    feeds: dict[str, Array],
    bench: isolated.Bench,
    budget_seconds: float = 10.0,
    nodes: Nodes | None = None,
) -> ProbeResult:
    """Predict what `method` (a key of METHODS) would make of a float ONNX file.

    feeds: one batch (n, ...) by input name; nodes: the file's profile, where it is known already. Takes about
    `budget_seconds`: pairs of kernels that do not fit are left out, and `covered_share` says so. Raises KeyError for an
    unknown method, InputError for a file that the runtime refuses.
    """
    chosen = METHODS[method]
    started = time.monotonic()
    task = Task(path=path, feeds=feeds, bench=bench, started=started, budget=budget_seconds, nodes=nodes)
    found = _PROBES[chosen.kind](task, chosen)
    return ProbeResult(
        method=method,
        speedup=found.speedup,
        covered_share=found.covered_share,
        seconds=round(time.monotonic() - started, 2),
        note=found.note,
    )


def graph_mode(eager_ms: Sequence[float], file_ms: Sequence[float]) -> ProbeResult:
    """What leaving eager torch for the exported file gives, from calls of both timed before, (n,) and (m,)."""
    count = min(len(eager_ms), len(file_ms))
    logs = np.log(np.array(eager_ms[:count]) / np.array(file_ms[:count]))
    note = "eager torch against the exported file, not interleaved"
    return ProbeResult(method="graph-mode", speedup=ratio_of_medians(logs), covered_share=1.0, seconds=0.0, note=note)


def _batch(task: Task, method: Method) -> Found:
    many = int(method.amount)
    ratio = task.in_turns(task.path, task.budget / 2, (1, many))["ratio"]
    # per sample: a call of `many` does the work of `many` calls of one
    found = repeatable(Interval(**{name: ratio[name] * many for name in ("value", "low", "high")}, n=ratio["n"]))
    return Found(speedup=found, covered_share=1.0, note=f"time per sample of the whole file, batch {many} against 1")


def _depth(task: Task, _method: Method) -> Found:
    share = removable_share(task.path, task.feeds, task.profile())
    if not share.blocks:
        return Found(note="no repeated blocks found by module name, so depth cannot be halved this way")
    found = Interval(value=1 / (1 - share.value), low=1 / (1 - share.low), high=1 / (1 - share.high), n=1)
    note = f"an estimate from shares of time, nothing timed: {share.blocks} repeated blocks dropped"
    return Found(speedup=found, covered_share=share.value, note=note)


_PROBES: dict[Kind, Callable[[Task, Method], Found]] = {
    "static": rewritten.predict,
    "dynamic": rewritten.predict,
    "weights": rewritten.predict,
    "prune": replaced.predict,
    "depth": _depth,
    "batch": _batch,
}
