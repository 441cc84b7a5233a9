"""Ask the worker process: the public face of timing, memory, profiles and first opening."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compress.candidate import Value
from compress.data import Array
from compress.errors import EnvironmentProblem, InputError
from compress.measure import stats
from compress.measure.latency import Plan

TIMEOUT_SECONDS = 900
ERRORS = {"InputError": InputError, "EnvironmentProblem": EnvironmentProblem}
Feeds = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """How files are run: provider, threads, and the plan of a paired timing."""

    provider: str
    threads: int
    plan: Plan = field(default_factory=Plan)
    tries: int = 3


def compare_files(a: Path, b: Path, feeds: Feeds, bench: Bench) -> dict[str, Any]:
    """Time file `b` against file `a` on `feeds`. Returns ratio, a_a, a_ms, b_ms, first_call_ms, pressure."""
    request = _request("compare", a, bench) | {"b": str(b), "plan": asdict(bench.plan), "tries": bench.tries}
    return _ask(request, feeds)


def peak_memory(path: Path, feeds: Feeds, bench: Bench) -> int | None:
    """Bytes that loading and running the file adds to an idle runtime, or None where the system cannot tell."""
    found = _ask(_request("memory", path, bench), feeds)["peak_memory_bytes"]
    return None if found is None else int(found)


def profile(path: Path, feeds: Feeds, bench: Bench, runs: int = 20, seconds: float = 60.0) -> list[dict[str, Any]]:
    """Median milliseconds per node of the optimised graph: [{name, op, time_ms}]. Fewer runs when time is up."""
    return list(_ask(_request("profile", path, bench) | {"runs": runs, "seconds": seconds}, feeds)["nodes"])


def probe_pairs(idle: Path, pairs: Sequence[tuple[Path, Path]], bench: Bench, seconds: float) -> dict[str, Any]:
    """Kernel times of pairs of small files with made-up inputs, within about `seconds`.

    idle: a file whose nodes do nothing. Returns {floor_ms: what the profiler adds to a node, pairs: one of
    {a: {blocks_ms, nodes}, b: {...}}, {refused: why} or None (no time left) for each pair}.
    """
    named = [[str(a), str(b)] for a, b in pairs]
    return _ask(_request("probe", idle, bench) | {"pairs": named, "seconds": seconds}, {})


def time_in_turns(
    a: Path, b: Path, feeds: Feeds, bench: Bench, seconds: float, batches: tuple[int | None, int | None] = (None, None)
) -> dict[str, Any]:
    """Time file `b` against file `a` for about `seconds`, without the A/A run of `compare_files`.

    batches: samples of a call of each, rows of `feeds` repeated or cut; None: all. Returns ratio, a_ms, b_ms.
    """
    more = {"b": str(b), "batches": dict(zip("ab", batches, strict=True)), "seconds": seconds}
    return _ask(_request("turns", a, bench) | more, feeds)


def open_isolated(path: Path, optimised: Path, bench: Bench) -> dict[str, Any]:
    """First opening of a file, away from this process; writes the optimised graph. InputError on refusal or crash."""
    return _ask(_request("open", path, bench) | {"optimised": str(optimised)}, {})


def latency_values(samples_ms: list[float], batch: int) -> dict[str, Value]:
    """P50, P95, P99 and throughput from every timed call, each only when n supports it."""
    samples = np.array(samples_ms)
    found = {f"latency_p{q}_ms": _percentile(samples, q, batch) for q in (50, 95, 99)}
    p50 = found["latency_p50_ms"]
    if p50.value is not None and p50.low and p50.high:
        per_s = [1e3 * batch / ms for ms in (p50.value, p50.high, p50.low)]
        found["throughput_per_s"] = Value(value=per_s[0], low=per_s[1], high=per_s[2], n=p50.n, batch=batch)
    return found


def _percentile(samples: stats.Floats, q: int, batch: int) -> Value:
    interval = stats.percentile(samples, q)
    if interval is None:
        return Value(
            value=None,
            n=len(samples),
            batch=batch,
            note=f"P{q} not supported by n={len(samples)} (needs {stats.needed_samples(q)})",
        )
    return Value(value=interval.value, low=interval.low, high=interval.high, n=interval.n, batch=batch)


def _request(kind: str, path: Path, bench: Bench) -> dict[str, Any]:
    return {"kind": kind, "a": str(path), "provider": bench.provider, "threads": bench.threads}


def _ask(request: dict[str, Any], feeds: Feeds) -> dict[str, Any]:
    with _saved(feeds) as inputs, _in_time(request):
        finished = subprocess.run(
            [sys.executable, "-m", "compress.measure.worker"],
            input=json.dumps(request | {"inputs": str(inputs)}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            env=child_environment(),
            check=False,
        )
    return _answer(request, finished)


def _answer(request: dict[str, Any], finished: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    if finished.returncode == -2 or finished.returncode == 130:
        raise KeyboardInterrupt
    try:
        answer = json.loads(finished.stdout)
    except ValueError:
        tail = (finished.stderr.strip().splitlines() or ["no message"])[-1][:300]
        fact = f"the process that ran it ended with status {finished.returncode} ({tail})"
        raise InputError(request.get("b", request["a"]), fact, "This file makes the runtime crash") from None
    if "error" in answer:
        error = answer["error"]
        raise ERRORS.get(error["class"], InputError)(error["place"], error["fact"], error["remedy"])
    return dict(answer["ok"])


@contextmanager
def _in_time(request: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired as error:
        fact = f"the process that ran it gave no answer within {TIMEOUT_SECONDS} s"
        raise InputError(request.get("b", request["a"]), fact, "Try smaller batch sizes, or more threads") from error


def child_environment() -> dict[str, str]:
    """The child finds this package where the parent did."""
    package_parent = str(Path(__file__).parents[2])
    paths = [package_parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def _saved(feeds: Feeds) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        path = Path(folder) / "inputs.npz"
        np.savez(path, allow_pickle=False, **feeds)
        yield path
