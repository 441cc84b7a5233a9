"""A process of its own for everything that times, sizes or first opens a model file: no torch, no other thread pools.

Run as `python -m compress.measure.worker`; one JSON request on stdin, one JSON answer on stdout. A crash of the runtime
ends this process only.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from compress.device.facts import pressure
from compress.device.runtime import open_session
from compress.errors import CompressError
from compress.measure import kernels
from compress.measure.latency import Comparison, Plan, compare, warm_up, widen

Request = dict[str, Any]
WARM_UP_RUNS = 3
# The rest of a pair's time goes into opening its files and reading its profile.
TIMED_SHARE = 0.6


def main() -> None:
    request = json.load(sys.stdin)
    answer_stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # banners of native libraries must not end up in the answer
    try:
        answer = {"ok": HANDLERS[request["kind"]](request)}
    except CompressError as error:
        answer = {
            "error": {"class": type(error).__name__, "place": error.place, "fact": error.fact, "remedy": error.remedy}
        }
    json.dump(answer, answer_stream)
    answer_stream.flush()


def handle_compare(request: Request) -> dict[str, Any]:
    """A/A first, then A against B. Repeats while the machine is noisy, keeps the quietest try."""
    a, b = _runner(request, "a"), _runner(request, "b")
    a_again = _runner(request, "a")
    first_call_ms = {"a": warm_up(a), "b": warm_up(b)}
    warm_up(a_again)
    before = pressure()
    plan = Plan(**request["plan"])
    tries = []
    for _ in range(request["tries"]):
        a_a = compare(a, a_again, Plan(seconds=plan.seconds / 2, half_width=plan.half_width, cpu_time=plan.cpu_time))
        tries.append((a_a, compare(a, b, plan)))
        if a_a.clean:
            break
    a_a, found = min(tries, key=lambda pair: (not pair[0].clean, pair[0].half_width))
    return {
        "ratio": vars(widen(found.ratio, a_a)),
        "a_a": _a_a(a_a),
        "a_ms": _rounded(found.a_ms),
        "b_ms": _rounded(found.b_ms),
        "first_call_ms": first_call_ms,
        "pressure": {"before": before, "after": pressure()},
    }


def handle_memory(request: Request) -> dict[str, Any]:
    """Peak resident bytes that loading and running the model adds to an idle runtime."""
    import onnxruntime  # noqa: F401  the runtime itself is not the model's cost

    feeds = _feeds(request)
    before = _resident_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5") if Path("/proc/self/clear_refs").exists() else None
    run = _runner(request, "a", feeds)
    for _ in range(3):
        run()
    return {"peak_memory_bytes": max(0, _resident_bytes("VmHWM") - before) if before else None}


def handle_profile(request: Request) -> dict[str, Any]:
    """Time per node of the optimised graph over `runs` calls, as the runtime's own profiler saw it."""
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(
            Path(request["a"]),
            provider=request["provider"],
            threads=request["threads"],
            profile_prefix=Path(folder) / "profile",
        )
        feeds = _feeds(request)
        deadline = time.perf_counter() + request["seconds"]
        done = 0
        while done < WARM_UP_RUNS + 1 or (done < request["runs"] + WARM_UP_RUNS and time.perf_counter() < deadline):
            session.run(None, feeds)
            done += 1
        events = json.loads(Path(session.end_profiling()).read_text())
    return {"nodes": _kernel_times(events, done - WARM_UP_RUNS)}


def handle_probe(request: Request) -> dict[str, Any]:
    """Kernel times of pairs of small files, in turns; pairs that the time does not reach are None, never the first."""
    how = kernels.How(provider=request["provider"], threads=request["threads"])
    started, left = time.perf_counter(), len(request["pairs"])
    found: list[dict[str, Any] | None] = []
    floors = [kernels.floor_ms(Path(request["a"]), how)]
    for a, b in request["pairs"]:
        seconds = request["seconds"] - (time.perf_counter() - started)
        found.append(_pair(Path(a), Path(b), how, seconds / left) if seconds > 0 or not found else None)
        left -= 1
    floors.append(kernels.floor_ms(Path(request["a"]), how))
    return {"floor_ms": min(floors), "pairs": found}


def handle_turns(request: Request) -> dict[str, Any]:
    """Two whole files, or one at two batch sizes, in turns: the short form of `handle_compare`, without A/A."""
    how = kernels.How(provider=request["provider"], threads=request["threads"])
    a, b = (kernels.Run(path=Path(request[name]), batch=request["batches"][name]) for name in "ab")
    found = kernels.whole_times(a, b, _feeds(request), how, request["seconds"])
    return {"ratio": vars(found.ratio), "a_ms": _rounded(found.a_ms), "b_ms": _rounded(found.b_ms)}


def handle_open(request: Request) -> dict[str, Any]:
    """Open the file once and save the graph that really runs. Says which providers the session has."""
    session = open_session(
        Path(request["a"]),
        provider=request["provider"],
        threads=request["threads"],
        optimised_path=Path(request["optimised"]),
    )
    return {
        "providers": session.get_providers(),
        "inputs": [[item.name, item.type, item.shape] for item in session.get_inputs()],
        "outputs": [[item.name, item.type, item.shape] for item in session.get_outputs()],
    }


HANDLERS: dict[str, Callable[[Request], dict[str, Any]]] = {
    "compare": handle_compare,
    "memory": handle_memory,
    "profile": handle_profile,
    "open": handle_open,
    "probe": handle_probe,
    "turns": handle_turns,
}


def _pair(a: Path, b: Path, how: kernels.How, seconds: float) -> dict[str, Any]:
    try:
        return kernels.pair_times(a, b, how, seconds * TIMED_SHARE)
    except CompressError as error:
        return {"refused": error.fact}


def _runner(request: Request, which: str, feeds: dict[str, Any] | None = None) -> Callable[[], object]:
    session = open_session(Path(request[which]), provider=request["provider"], threads=request["threads"])
    given = _feeds(request) if feeds is None else feeds
    return lambda: session.run(None, given)


def _feeds(request: Request) -> dict[str, Any]:
    with np.load(request["inputs"], allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _kernel_times(events: list[dict[str, Any]], runs: int) -> list[dict[str, Any]]:
    """Median milliseconds per node; the first calls are warm-up."""
    times: dict[str, list[float]] = {}
    ops: dict[str, str] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            node = name.removesuffix("_kernel_time")
            times.setdefault(node, []).append(event["dur"] / 1e3)
            ops[node] = event.get("args", {}).get("op_name", "?")
    return [
        {"name": node, "op": ops[node], "time_ms": float(np.median(found[-runs:]))} for node, found in times.items()
    ]


def _a_a(a_a: Comparison) -> dict[str, Any]:
    return vars(a_a.ratio) | {"half_width": a_a.half_width, "clean": a_a.clean}


def _rounded(values: np.ndarray[Any, Any]) -> list[float]:
    return [round(float(value), 5) for value in values]


def _resident_bytes(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), 0)


if __name__ == "__main__":
    main()
