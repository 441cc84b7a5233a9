"""One probe under way: the file, its inputs, and how much time is left."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.data import Array
from compress.measure import isolated
from compress.measure.stats import Interval

Nodes = Sequence[Mapping[str, Any]]

# Shares of the budget for what is timed about the whole file.
WHOLE_SHARE, PROFILE_SHARE = 0.1, 0.1
# Of a small net a few runs are over before the processor is at speed.
PROFILE_RUNS = 300


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a probe says: see `ProbeResult`."""

    speedup: Interval | None = None
    covered_share: float = 0.0
    note: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """started: by time.monotonic; budget: seconds from there; nodes: the file's profile where known."""

    path: Path
    feeds: dict[str, Array]
    bench: isolated.Bench
    started: float
    budget: float
    nodes: Nodes | None

    def left(self) -> float:
        """Seconds of the budget not used yet."""
        return self.started + self.budget - time.monotonic()

    def profile(self) -> Nodes:
        """Milliseconds per node of the file: [{name, op, time_ms}]."""
        if self.nodes is not None:
            return self.nodes
        return isolated.profile(self.path, self.feeds, self.bench, PROFILE_RUNS, self.budget * PROFILE_SHARE)

    def calls_ms(self) -> list[float]:
        """Milliseconds of whole calls without a profiler."""
        return list(self.in_turns(self.path, self.budget * WHOLE_SHARE)["a_ms"])

    def in_turns(
        self, other: Path, seconds: float, batches: tuple[int | None, int | None] = (None, None)
    ) -> dict[str, Any]:
        """The file beside another one, or at two batch sizes; see `isolated.time_in_turns`."""
        return isolated.time_in_turns(self.path, other, self.feeds, self.bench, seconds, batches)
