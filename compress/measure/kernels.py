"""Kernel times of small model files, timed in pairs: what the worker process does for a probe. No torch.

The runtime's profiler adds a constant to every node and counts whole microseconds, so half of one is added back here
and the constant is measured beside the pairs (`floor`), for the caller to take off.
"""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.device.runtime import open_session
from compress.measure.latency import Call, Comparison, Plan, compare

# Inside a net, layouts change only where the integer or blocked part begins and ends; around a lone node always.
LAYOUT_OPS = frozenset({"ReorderInput", "ReorderOutput", "Transpose"})
WARM_UP_RUNS = 3
SIDE_SECONDS = 0.003
FEWEST_BLOCKS, MOST_BLOCKS = 4, 40
MOST_CALLS = 100
# Half of the profiler's resolution: it cuts microseconds off.
CUT_OFF_MS = 0.0005
NUMBERS = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}


@dataclass(frozen=True, kw_only=True)
class How:
    provider: str
    threads: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole file and the samples of a call; None: as many as there are."""

    path: Path
    batch: int | None = None


def pair_times(a: Path, b: Path, how: How, seconds: float) -> dict[str, Any]:
    """Kernel milliseconds of two files by ABBA block: {a: {blocks_ms, nodes}, b: {...}}; layout changes left out."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [_Side(path, how, Path(folder) / name) for path, name in ((a, "a"), (b, "b"))]
        one, other = sides
        calls = max(side.calls() for side in sides)
        started, blocks = time.perf_counter(), 0
        while blocks < MOST_BLOCKS and (blocks < FEWEST_BLOCKS or time.perf_counter() - started < seconds):
            one.run(calls)
            other.run(2 * calls)
            one.run(calls)
            blocks += 1
        return {name: side.finish(blocks, 2 * calls) for name, side in zip("ab", sides, strict=True)}


def floor_ms(path: Path, how: How) -> float:
    """What the profiler shows for a node that does nothing, from a file of such nodes."""
    found = pair_times(path, path, how, seconds=0.05)
    return float(np.median(found["a"]["blocks_ms"]) / found["a"]["nodes"])


def whole_times(a: Run, b: Run, feeds: dict[str, Any], how: How, seconds: float) -> Comparison:
    """Whole files in interleaved blocks for about `seconds`; rows of `feeds` (n, ...) repeat to fill a batch."""
    calls = [_call(run, feeds, how) for run in (a, b)]
    for call in calls:
        for _ in range(WARM_UP_RUNS):
            call()
    plan = Plan(
        min_blocks=FEWEST_BLOCKS, max_blocks=10 * MOST_BLOCKS, seconds=seconds, half_width=0.0,
        cpu_time=how.threads == 1,
    )  # fmt: skip
    return compare(calls[0], calls[1], plan)


def _call(run: Run, feeds: dict[str, Any], how: How) -> Call:
    session = open_session(run.path, provider=how.provider, threads=how.threads)
    given = {name: _rows(values, run.batch) if run.batch else values for name, values in feeds.items()}
    return lambda: session.run(None, given)


class _Side:
    """One profiled session with inputs made up to its declared shapes."""

    def __init__(self, path: Path, how: How, prefix: Path) -> None:
        self.session = open_session(path, provider=how.provider, threads=how.threads, profile_prefix=prefix)
        rng = np.random.default_rng(0)
        self.feeds = {item.name: _made_up(item.type, item.shape, rng) for item in self.session.get_inputs()}
        self.warm = WARM_UP_RUNS
        self.run(WARM_UP_RUNS)

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self.session.run(None, self.feeds)

    def calls(self) -> int:
        """Calls that fill one side of a block; they count as warm-up."""
        start = time.perf_counter()
        self.run(2)
        self.warm += 2
        once = (time.perf_counter() - start) / 2
        return int(min(MOST_CALLS, max(1, np.ceil(SIDE_SECONDS / once))))

    def finish(self, blocks: int, calls: int) -> dict[str, Any]:
        events = json.loads(Path(self.session.end_profiling()).read_text())
        runs, nodes = _runs(events)
        timed = np.array(runs[self.warm :][: blocks * calls]).reshape(blocks, calls)
        return {"blocks_ms": [round(_middle_mean(row), 6) for row in timed], "nodes": nodes}


def _runs(events: list[dict[str, Any]]) -> tuple[list[float], int]:
    """Kernel milliseconds of each run, and how many nodes they add up."""
    times: dict[str, list[float]] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith("_kernel_time"):
            continue
        if event.get("args", {}).get("op_name") not in LAYOUT_OPS:
            times.setdefault(name, []).append(event["dur"] / 1e3 + CUT_OFF_MS)
    return [sum(row) for row in zip(*times.values(), strict=True)], len(times)


def _middle_mean(values: Any) -> float:
    """Mean of the middle half: whole microseconds average out, interruptions do not count."""
    ordered = np.sort(values)
    quarter = len(ordered) // 4
    return float(ordered[quarter : len(ordered) - quarter].mean())


def _made_up(kind: str, shape: list[Any], rng: np.random.Generator) -> Any:
    number = NUMBERS[kind]
    if number is np.float32:
        return rng.standard_normal(shape).astype(number)
    return rng.integers(0, 256, size=shape, dtype=np.uint8).view(number)


def _rows(values: Any, batch: int) -> Any:
    return values[np.arange(batch) % len(values)]
