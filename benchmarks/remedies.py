"""Apply the remedies that the verdict advises, and time them beside what it promised. Repeat with:

python benchmarks/remedies.py

Writes benchmarks/results/remedies.json and the table in docs/remedies.md. Losing rows stay in it.
"""

import json
import platform
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compress import zoo
from compress.analyze.classes import Measured
from compress.analyze.methods import Asked
from compress.analyze.operators import torch_operator_times
from compress.analyze.trace import trace
from compress.data import Array
from compress.device import facts
from compress.device.ceilings import Ceilings
from compress.export.onnx import call_arguments, export_onnx
from compress.measure.isolated import Bench, compare_files, profile, time_in_turns
from compress.measure.latency import Plan
from compress.measure.stats import Interval, percentile, ratio_of_medians
from compress.stages.verdict import (
    Judged,
    Timed,
    ceilings_of_this_machine,
    elasticity_of,
    judge_file,
    judge_table,
    undisturbed,
)

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "remedies.json", ROOT / "docs" / "remedies.md"
START, END = "<!-- table -->", "<!-- /table -->"
BENCH = Bench(provider="cpu", threads=1, plan=Plan(seconds=6.0))
BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was promised and what came. measured: an interval; at_most: None where nothing bounds it."""

    net: str
    verdict: str
    share: float
    remedy: str
    promised: float
    at_most: float | None
    measured: Interval

    def cells(self) -> list[str]:
        most = "-" if self.at_most is None else f"{self.at_most:.1f}x"
        seen = self.measured
        figures = f"{seen.value:.2f}x [{seen.low:.2f}, {seen.high:.2f}] ({seen.n})"
        return [self.net, f"{self.verdict} {self.share:.0%}", self.remedy, f"{self.promised:.2f}x", most, figures]


def main() -> None:
    torch.set_num_threads(BENCH.threads)
    ceilings = ceilings_of_this_machine(BENCH.threads, print)
    with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
        folder = Path(scratch)
        rows = [
            batching("digits_deep", zoo.digits_deep(), _digits(), folder, ceilings),
            graph_mode("digits_deep", zoo.digits_deep(), _digits(), folder, ceilings),
            folding(folder, ceilings),
            batching("three products of 2048 x 2048", _wide(), _features(), folder, ceilings),
        ]
    _write(rows)


def batching(name: str, net: nn.Module, samples: Array, folder: Path, ceilings: Ceilings) -> Row:
    """One pass of a batch against as many passes of one sample."""
    path = _exported(net, samples, folder, f"{name}.onnx")
    judged = _judged(path, samples, ceilings)
    ratio = time_in_turns(path, path, {"input": samples}, BENCH, BENCH.plan.seconds, (1, BATCH))["ratio"]
    measured = Interval(**{end: BATCH * ratio[end] for end in ("value", "low", "high")}, n=ratio["n"])
    return _row(name, judged, f"batch {BATCH}", "batches of 8, time a sample", measured)


def graph_mode(name: str, net: nn.Module, samples: Array, folder: Path, ceilings: Ceilings) -> Row:
    """Eager torch, judged by its own op times, against the exported file, in turns."""
    feeds = {"input": samples[:1]}
    seen = torch_operator_times(net, feeds, threads=BENCH.threads)
    args, kwargs = call_arguments(feeds)
    eager = _eager_ms(net, samples[:1])
    whole = _median(eager)
    measured = Measured(runtime="torch", end_to_end_ms=whole, ops=seen.rows, ops_estimated=True)
    grown = (_median(_eager_ms(net, samples[:2])).value - whole.value) / whole.value
    judged = judge_table(trace(net, args, kwargs), ceilings, measured, Asked(), elasticity=grown)
    path = _exported(net, samples, folder, f"{name}-graph.onnx")
    file_ms = time_in_turns(path, path, feeds, BENCH, BENCH.plan.seconds)["a_ms"]
    count = min(len(eager), len(file_ms))
    gain = ratio_of_medians(np.log(np.array(eager[:count]) / np.array(file_ms[:count])))
    return _row(f"{name}, eager torch", judged, "graph mode", "exported to ONNX Runtime", gain)


def folding(folder: Path, ceilings: Ceilings) -> Row:
    """The same function with its transposes folded into the kernels, both files timed interleaved."""
    samples = _digits()
    turned = _exported(zoo.digits_axial(), samples, folder, "turned.onnx")
    folded = _exported(zoo.digits_axial(folded=True), samples, folder, "folded.onnx")
    judged = _judged(turned, samples, ceilings)
    measured = Interval(**compare_files(turned, folded, {"input": samples[:1]}, BENCH)["ratio"])
    return _row("digits_axial", judged, "copies folded", "transposes folded into kernels", measured)


def _row(net: str, judged: Judged, method: str, remedy: str, measured: Interval) -> Row:
    promise = next(one for one in judged.predictions if one.name == method)
    return Row(
        net=net, verdict=judged.verdict.class_, share=judged.verdict.share, remedy=remedy,
        promised=promise.expected, at_most=promise.hard, measured=measured,
    )  # fmt: skip


def _judged(path: Path, samples: Array, ceilings: Ceilings) -> Judged:
    feeds = {"input": samples[:1]}
    calls = compare_files(path, path, feeds, BENCH)["b_ms"]
    whole, note = undisturbed(calls)
    timed = Timed(
        end_to_end_ms=whole,
        note=note,
        kernels=profile(path, feeds, BENCH),
        batch=1,
        elasticity=elasticity_of(path, {"input": samples[:1]}, BENCH),
    )
    return judge_file(path, timed, ceilings, Asked(), {"input": samples[:1].shape})


def _median(calls_ms: list[float]) -> Interval:
    found = percentile(np.array(calls_ms), 50)
    if found is None:
        raise SystemExit(f"only {len(calls_ms)} calls could be timed")
    return found


def _eager_ms(net: nn.Module, samples: Array, calls: int = 300) -> list[float]:
    import time

    batch, times = torch.from_numpy(samples), []
    with torch.inference_mode():
        for _ in range(calls):
            start = time.perf_counter_ns()
            net(batch)
            times.append((time.perf_counter_ns() - start) / 1e6)
    return times[calls // 10 :]


def _exported(net: nn.Module, samples: Array, folder: Path, name: str) -> Path:
    path = folder / name
    export_onnx(net, {"input": samples[:2]}, path, ["output"])
    return path


def _digits() -> Array:
    return zoo.digits()["select"][0][:BATCH]


def _features() -> Array:
    return np.random.default_rng(0).standard_normal((BATCH, 2048)).astype(np.float32)


def _wide() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(2048, 2048), nn.ReLU()))).eval()


def _write(rows: list[Row]) -> None:
    document: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": facts.cpu_facts(),
        "threads": BENCH.threads,
        "platform": platform.platform(),
        "versions": facts.versions(),
        "rows": [asdict(row) for row in rows],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    head = ["net", "verdict", "remedy", "promised", "at most", "measured [99 %] (n)"]
    lines = [head, ["---"] * len(head), *(row.cells() for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    before, rest = PAGE.read_text().split(START)
    PAGE.write_text(f"{before}{START}\n{table}\n{END}{rest.split(END)[1]}")
    print(table)


if __name__ == "__main__":
    main()
