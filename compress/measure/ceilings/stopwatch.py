"""Repeats of one call, the fastest of which counts: a ceiling is what the machine can do, not what it usually does."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from compress.device.ceilings import Figure
from compress.measure.ceilings.parts import Effort

Call = Callable[[], object]
TASKS = Path("/proc/self/task")
# Calls are timed in groups of at least this long, which the clock resolves to a thousandth and a scheduler rarely cuts.
GROUP_SECONDS = 1e-4


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Seconds of one call in the fastest repeat, how far the slowest was off, and elapsed over busy time."""

    seconds: float
    spread: float
    n: int
    wall_over_cpu: float

    def figure(self, value: float, how: str) -> Figure:
        return Figure(value=value, how=how, spread=self.spread, n=self.n, wall_over_cpu=self.wall_over_cpu)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A kernel at one size. work: operations or bytes of one call; make: builds the operands, gives the call."""

    how: str
    work: float
    make: Callable[[], Call]


class Stopwatch:
    """Times calls in this process and adds up how long it ran and how long it was let run."""

    def __init__(self, *, threads: int, effort: Effort) -> None:
        self.threads, self.effort = threads, effort
        self.wall_s = self.busy_s = 0.0

    def time(self, call: Call) -> Sample:
        """Time the call in `repeats` repeats, after one call to warm up."""
        call()
        group, groups = self._plan(call)
        repeats = [self._repeat(call, group, groups) for _ in range(self.effort.repeats)]
        wall, busy = sum(one[1] for one in repeats), sum(one[2] for one in repeats)
        self.wall_s, self.busy_s = self.wall_s + wall, self.busy_s + busy
        seconds = [one[0] for one in repeats]
        fastest = min(seconds)
        return Sample(
            seconds=fastest, spread=max(seconds) / fastest - 1, n=len(seconds), wall_over_cpu=max(1.0, wall / busy)
        )

    def best(self, trials: Iterable[Trial]) -> Figure | None:
        """The fastest trial as work per second. Smallest first; ends where a call would take too long."""
        best: Figure | None = None
        rate = 0.0
        for trial in trials:
            if rate and trial.work / rate > self.effort.call_seconds:
                break
            sample = self.time(trial.make())
            rate = trial.work / sample.seconds
            if best is None or rate > best.value:
                best = sample.figure(rate, trial.how)
        return best

    def _plan(self, call: Call) -> tuple[int, int]:
        """Calls in a group, and groups in a repeat."""
        start = time.perf_counter()
        call()
        once = max(time.perf_counter() - start, 1e-7)
        group = max(1, int(GROUP_SECONDS / once))
        return group, max(1, int(self.effort.repeat_seconds / (group * once)))

    def _repeat(self, call: Call, group: int, groups: int) -> tuple[float, float, float]:
        """Seconds per call, elapsed seconds, and the seconds that would have elapsed had nobody else run."""
        waited, cpu, start = _waited_seconds(), time.process_time(), time.perf_counter()
        fastest = min(_elapsed(call, group) for _ in range(groups)) / group
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        if self.threads == 1:
            # CPU time leaves out what others had of the core, which a call longer than a time slice cannot avoid.
            return min(fastest, cpu / (group * groups)), wall, cpu
        # A pool's threads do not run all the time, so elapsed over CPU time says nothing; time spent runnable does.
        return fastest, wall, wall * cpu / (cpu + _waited_seconds() - waited)


def _elapsed(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def _waited_seconds() -> float:
    """Seconds that the threads of this process were ready to run but had no core: second field of schedstat, in ns."""
    try:
        fields = [(task / "schedstat").read_text().split() for task in TASKS.iterdir()]
    except OSError:  # a thread ended meanwhile, or another system
        return 0.0
    return sum(int(one[1]) for one in fields) / 1e9
