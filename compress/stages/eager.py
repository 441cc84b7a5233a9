"""A torch module as it runs today, op by op: its times, and what leaving that for a graph gives."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.analyze.classes import Measured
from compress.analyze.methods import Asked
from compress.analyze.predict import predict
from compress.analyze.summary import stage_row
from compress.analyze.table import OpTable
from compress.analyze.verdict import verdict
from compress.data import Array
from compress.device.ceilings import Ceilings
from compress.measure.stats import Interval, percentile
from compress.probe.probe import ProbeResult, graph_mode
from compress.stages.verdict import without_profiler

if TYPE_CHECKING:
    from torch import nn

GRAPH_MODE = "graph mode"
REPEATS = 20


@dataclass(frozen=True, kw_only=True)
class EagerTimes:
    """whole: median of a call in ms; calls_ms: all of them; rows: {module, op, time_ms} as the op table lists them."""

    whole: Interval
    calls_ms: Sequence[float] = field(repr=False)
    rows: Sequence[dict[str, Any]] = field(repr=False)


def eager_times(model: "nn.Module", feeds: dict[str, Array], threads: int) -> EagerTimes:
    """Time a module on one batch (n, ...) in this process. Whatever its forward raises comes through."""
    from compress.analyze.operators import torch_operator_times

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the user's own code, which says so wherever it runs
        times = torch_operator_times(model, feeds, threads, REPEATS)
    whole = percentile(np.array(times.calls_ms), 50)
    assert whole is not None
    return EagerTimes(whole=whole, calls_ms=times.calls_ms, rows=times.rows)


def graph_mode_row(
    table: OpTable, ceilings: Ceilings, eager: EagerTimes, file_ms: Sequence[float], asked: Asked
) -> tuple[dict[str, Any], ProbeResult]:
    """The row of graph mode against eager torch: predicted from the module's own table, probed by the file's times."""
    result = graph_mode(eager.calls_ms, file_ms)
    measured = Measured(
        runtime="torch",
        end_to_end_ms=eager.whole,
        ops=without_profiler(eager.rows, eager.whole.value),
        batch=asked.batch,
        ops_estimated=True,
    )
    probes = {GRAPH_MODE: result.speedup} if result.speedup is not None else {}
    wanted = Asked(batch=asked.batch, target_speedup=asked.target_speedup, probes=probes)
    found = predict(table, ceilings, verdict(table, ceilings, measured=measured), asked=wanted)
    row = stage_row(next(one for one in found if one.name == GRAPH_MODE))
    why = f"Against eager torch ({eager.whole.value:.4g} ms); the other rows are against the file. {row['why']}"
    return row | {"why": why, "probe_covered_share": result.covered_share}, result
