"""Ask two processes, one after the other, for their part of the ceilings and put them together."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import IO, Any, TypeVar

from compress.device.cached import kernel_versions
from compress.device.ceilings import CONTAMINATED_ABOVE, MEASURED, Ceilings, Contention, Figure, Rate
from compress.device.facts import cpu_facts, fingerprint, memory_bytes, pressure
from compress.errors import EnvironmentProblem
from compress.measure.ceilings.parts import FULL, Effort, Part, Product
from compress.measure.isolated import child_environment

# ONNX Runtime first: its process starts in a second, so the first line of progress comes soon.
PARTS = ("runtime", "torch")
TIMEOUT_SECONDS = 300.0
PIPE = subprocess.PIPE

Listener = Callable[[str], None]
T = TypeVar("T")


def measure_ceilings(threads: int, listener: Listener, effort: Effort = FULL) -> Ceilings:
    """Measure this machine with `threads` threads; about half a minute. `listener` is told each step as it begins.

    Nothing is refused on a busy machine: what is not to be trusted is marked `contaminated`.
    Raises EnvironmentProblem when a measuring process crashes or hangs.
    """
    before = pressure()
    parts = [_ask({"part": part, "threads": threads, "effort": asdict(effort)}, listener) for part in PARTS]
    return _together(parts, threads, before)


def _ask(request: dict[str, Any], listener: Listener) -> Part:
    command = [sys.executable, "-m", "compress.measure.ceilings.worker"]
    environment = _environment(request["threads"])
    # A file, because nobody reads a second pipe while the process works, and a full one would stop it.
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        try:
            return _converse(process, request, listener, errors)
        finally:
            watchdog.cancel()
            process.kill()


def _converse(process: "subprocess.Popen[str]", request: dict[str, Any], listener: Listener, errors: IO[str]) -> Part:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request))
    process.stdin.close()
    for line in process.stdout:
        answer = json.loads(line)
        if "part" in answer:
            return Part.from_dict(answer["part"])
        listener(answer["step"])
    status = process.wait()
    errors.seek(0)
    tail = (errors.read().strip().splitlines() or ["no message"])[-1][:300]
    fact = f"the process that measures ended with status {status} ({tail})"
    raise EnvironmentProblem(f"ceilings of {request['part']}", fact, "Run: compress doctor, and look for what it marks")


def _environment(threads: int) -> dict[str, str]:
    """Pools as large as asked, whatever the caller's environment says; NumPy's own pool stays asleep."""
    return child_environment() | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",
    }


def _together(parts: list[Part], threads: int, before: dict[str, float]) -> Ceilings:
    wall, busy = sum(part.wall_s for part in parts), sum(part.busy_s for part in parts)
    wall_over_cpu = max(1.0, wall / busy)
    return Ceilings(
        name=cpu_facts()["name"],
        source=MEASURED,
        confidence="measured",
        threads=threads,
        flop_per_s=_rates(parts),
        levels=tuple(level for part in parts for level in part.levels),
        dispatch_ns=_merged(part.dispatch_ns for part in parts),
        node_ns=next((part.node_ns for part in parts if part.node_ns), None),
        moves_bytes_per_s=_merged(part.moves_bytes_per_s for part in parts),
        memory_bytes=memory_bytes(),
        fingerprint=fingerprint(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=kernel_versions(),
        contention=Contention(wall_over_cpu=wall_over_cpu, before=before, after=pressure()),
        contaminated=wall_over_cpu > CONTAMINATED_ABOVE,
    )


def _rates(parts: list[Part]) -> dict[str, Rate]:
    products = [product for part in parts for product in part.products]
    base = max((one.figure.value for one in products if one.dtype == "fp32"), default=0.0)
    found = {dtype: _rate(dtype, products, base) for dtype in dict.fromkeys(one.dtype for one in products)}
    refused = _merged(part.refused for part in parts)
    return found | {dtype: Rate(supported=False, note=why) for dtype, why in refused.items()}


def _rate(dtype: str, products: list[Product], base: float) -> Rate:
    gemm, conv = (_best(products, dtype, kind) for kind in ("gemm", "conv"))
    fastest = max(one.value for one in (gemm, conv) if one)
    return Rate(gemm=gemm, conv=conv, slower_than_fp32=fastest < base)


def _best(products: list[Product], dtype: str, kind: str) -> Figure | None:
    figures = [one.figure for one in products if (one.dtype, one.kind) == (dtype, kind)]
    return max(figures, key=lambda one: one.value, default=None)


def _merged(dicts: Iterable[dict[str, T]]) -> dict[str, T]:
    return {name: value for one in dicts for name, value in one.items()}
