"""Our quantization beside that of others: one float file, one calibration set, one evaluation. Repeat with:

python benchmarks/peers.py [--environments FOLDER] [--nets NAME,...]

Every peer runs in an environment of its own, which is made in FOLDER (default .compress/peers) at the first call.
All may look at `select`; all are judged here, on `confirm`, by the package's own evaluation and interleaved timing.
Writes benchmarks/results/peers.json and the table of docs/peers-benchmark.md. Losing rows stay.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from compress.data import Split
from compress.device.facts import cpu_facts, pressure, versions
from compress.errors import CompressError
from compress.files import write_json, write_text
from compress.gate import Paired, judge_drop
from compress.measure import isolated
from compress.measure.accuracy import Runner, evaluate_file
from compress.measure.latency import Plan
from compress.measure.stats import Interval
from compress.recipe.load import load_recipe
from compress.recipe.spec import Gate
from compress.stages.inputs import Inputs, load_inputs

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "peers.json", ROOT / "docs" / "peers-benchmark.md"
PEER = ROOT / "benchmarks" / "parts" / "peer.py"
START, END = "<!-- rows -->", "<!-- /rows -->"
MAX_DROP, CALIBRATION, VALIDATION = 0.01, 512, 2000
TIMEOUT_SECONDS = 900
# Pinned, because another version is another peer. The last does not declare all that it imports.
ENVIRONMENTS = {
    "onnxruntime": ("onnxruntime==1.32.0", "onnx==1.23.2", "sympy"),
    "nncf": ("nncf==3.4.0", "onnxruntime==1.32.0", "onnx==1.23.2"),
    "neural-compressor": (
        "onnx-neural-compressor==1.0", "onnxruntime==1.32.0", "onnx==1.23.2", "prettytable", "psutil", "py-cpuinfo",
        "pyyaml", "scipy<1.16",
    ),
}  # fmt: skip
NETS = {
    "fashion_resnet": ("compress.zoo:fashion_resnet", "compress.zoo:fashion_mnist", False),
    "efficientnet_fashion": ("compress.zoo:efficientnet_fashion", "compress.zoo:efficientnet_data", False),
    "fashion_mobile": ("compress.zoo:fashion_mobile", "compress.zoo:fashion_mnist", False),
    "minilm_sentiment": ("compress.zoo:minilm_sentiment", "compress.zoo:minilm_data", True),
}
BENCH = isolated.Bench(provider="cpu", threads=1, plan=Plan(seconds=3.0), tries=2)
COLUMNS = ["net", "tool", "top1 drop [bound] (n)", "speed-up [99 %] (blocks)", "size", "wall time", "within the drop"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One tool on one net. drop: of top1 on confirm, low and high its one-sided 95 % bounds; seconds: wall time."""

    net: str
    tool: str
    note: str = ""
    drop: Interval | None = None
    outcome: str = "none"
    speedup: Interval | None = None
    size_ratio: float | None = None
    seconds: float | None = None

    def cells(self) -> list[str]:
        if self.drop is None or self.speedup is None:
            return [self.net, self.tool, *["-"] * 4, self.note]
        return [
            self.net, self.tool, f"{self.drop.value:+.4f} [{self.drop.high:+.4f}] ({self.drop.n})",
            f"{self.speedup.value:.2f} [{self.speedup.low:.2f}, {self.speedup.high:.2f}] ({self.speedup.n})",
            f"{self.size_ratio:.2f}x", f"{self.seconds:.0f} s", "; ".join(filter(None, [self.outcome, self.note])),
        ]  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--environments", type=Path, default=ROOT / ".compress" / "peers")
    options.add_argument("--nets", default=",".join(NETS))
    chosen = options.parse_args()
    pythons = {tool: environment(chosen.environments, tool) for tool in ENVIRONMENTS}
    before = pressure()
    rows = []
    for net in chosen.nets.split(","):
        with tempfile.TemporaryDirectory(prefix="compress-peers-") as folder:
            rows += rows_of(net, pythons, Path(folder))
    document = {
        "schema": "compress.peers-benchmark/1", "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {**cpu_facts(), "pressure": {"before": before, "after": pressure()}}, "versions": versions(),
        "peers": {tool: list(packages) for tool, packages in ENVIRONMENTS.items()},
        "max_drop": MAX_DROP, "calibration_samples": CALIBRATION, "rows": [asdict(row) for row in rows],
    }  # fmt: skip
    write_json(RESULTS, document)
    write_text(PAGE, with_table(PAGE.read_text(), document))


def environment(folder: Path, tool: str) -> Path:
    """The Python of the tool's environment, made if it is not there whole."""
    home = folder / tool
    ready = home / "ready.json"
    wanted = json.dumps(ENVIRONMENTS[tool])
    if not (ready.exists() and ready.read_text() == wanted):
        shutil.rmtree(home, ignore_errors=True)
        print(f"making {home}")
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *ENVIRONMENTS[tool]], check=True)
        ready.write_text(wanted)
    return home / "bin" / "python"


def rows_of(net: str, pythons: dict[str, Path], folder: Path) -> list[Row]:
    recipe = _recipe(net, folder)
    run = _run_ours(recipe, folder)
    inputs = load_inputs(load_recipe(recipe).recipe, recipe)
    source = run / "stages" / "01-export" / "model.onnx"
    _write_task(folder, source, inputs, transformer=NETS[net][2])
    feeds, _ = next(inputs.splits["calibration"].batches(1))
    judge = Judge(net=net, source=source, inputs=inputs, feeds=feeds)
    rows = [_our_row(judge, run)]
    for tool, python in {**pythons, "compress-step": Path(sys.executable)}.items():
        rows.append(_peer_row(judge, tool, python, folder))
        print(*rows[-1].cells(), sep=" | ", flush=True)
    return rows


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Holds every tool's file against the same float file."""

    net: str
    source: Path
    inputs: Inputs
    feeds: dict[str, np.ndarray]

    def row(self, tool: str, path: Path, seconds: float, note: str = "") -> Row:
        before, after = (self._scores(one) for one in (self.source, path))
        gate = Gate(metric="top1", max_drop=MAX_DROP, max_relative_drop=None)
        drop = judge_drop(gate, self.inputs.metric, Paired(split="confirm", baseline=before, candidate=after))
        ratio = isolated.compare_files(self.source, path, self.feeds, BENCH)["ratio"]
        return Row(
            net=self.net, tool=tool, note=note, outcome=drop.outcome,
            drop=Interval(value=drop.value or 0.0, low=drop.low or 0.0, high=drop.high or 0.0, n=len(before)),
            speedup=Interval(**ratio), size_ratio=path.stat().st_size / self.source.stat().st_size, seconds=seconds,
        )  # fmt: skip

    def _scores(self, path: Path) -> Any:
        runner = Runner(provider="cpu", threads=1, batch=1)
        split = self.inputs.splits["confirm"]
        return evaluate_file(path, split, self.inputs.metric, runner, lambda _done, _total: None).scores


def _our_row(judge: Judge, run: Path) -> Row:
    """What the ladder ended with: its winner, or else the float model, which it then says to keep."""
    report = json.loads((run / "report.json").read_text())
    winner = next((one for one in report["candidates"] if one["name"] == report["winner"]), None)
    path, name = (run / winner["artefact"], winner["name"]) if winner else (judge.source, "keep the float model")
    seconds = sum(row["seconds"] or 0.0 for row in report["ledger"] if row["stage"] == "ptq")
    row = judge.row("compress ptq", path, seconds, name.removeprefix("ptq/"))
    print(*row.cells(), sep=" | ", flush=True)
    return row


def _peer_row(judge: Judge, tool: str, python: Path, folder: Path) -> Row:
    work = folder / tool
    work.mkdir()
    for name in ("model.onnx", "calibration.npz", "select.npz", "task.json"):
        (work / name).symlink_to(folder / name)
    try:
        command = [python, PEER, tool, work]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
            env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": _path_for(tool)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Row(net=judge.net, tool=tool, note=f"did not end in {TIMEOUT_SECONDS} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Row(net=judge.net, tool=tool, note=f"failed: {last[:200]}")
    try:
        seconds = json.loads((work / "done.json").read_text())["seconds"]
        return judge.row(tool, work / "quantized.onnx", seconds)
    except CompressError as error:
        return Row(net=judge.net, tool=tool, note=f"its file does not run: {error}")


def _path_for(tool: str) -> str:
    return str(ROOT) if tool == "compress-step" else ""


def _recipe(net: str, folder: Path) -> Path:
    model, data, _ = NETS[net]
    text = yaml.safe_dump({
        "schema": 1, "name": "peers", "seed": 0, "model": {"ref": model},
        "data": {"ref": data, "calibration_samples": CALIBRATION}, "metric": "top1",
        "gates": [{"metric": "top1", "max_drop": MAX_DROP}, {"metric": "speedup", "min": 1.05}],
        "budget": {"minutes": 30}, "stages": ["ptq"],
    })  # fmt: skip
    path = folder / "recipe.yaml"
    path.write_text(text)
    return path


def _run_ours(recipe: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "compress", "run", recipe, "-o", folder / "ours"]
    code = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 1):
        raise SystemExit(f"compress run ended with {code}")
    (found,) = (folder / "ours" / "runs").glob("*/*/report.json")
    return found.parent


def _write_task(folder: Path, source: Path, inputs: Inputs, *, transformer: bool) -> None:
    shutil.copy(source, folder / "model.onnx")
    feeds, _ = _read(inputs.splits["calibration"])
    np.savez(folder / "calibration.npz", **feeds)
    feeds, labels = _read(inputs.splits["select"].take(VALIDATION))
    np.savez(folder / "select.npz", **feeds, labels=labels)
    write_json(folder / "task.json", {"max_drop": MAX_DROP, "transformer": transformer})


def _read(split: Split) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return split.read(np.arange(len(split)))


def with_table(page: str, document: dict[str, Any]) -> str:
    """The page with everything between its markers made anew."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in rows_in(document))]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    machine, used = document["machine"], document["versions"]
    runtime = next((f"{name} {version}" for name, version in used.items() if name.startswith("onnxruntime")), "")
    head = (
        f"{document['date'][:10]}, {machine['name']} ({machine['int8']}), 1 thread, judged in {runtime}. "
        f"{_packages(document['peers'])}"
    )
    before, rest = page.split(START)
    return f"{before}{START}\n{head}\n\n{table}\n{END}{rest.split(END)[1]}"


def _packages(peers: dict[str, Sequence[str]]) -> str:
    return "Peers: " + ", ".join(packages[0].replace("==", " ") for packages in peers.values()) + "."


def rows_in(document: dict[str, Any]) -> list[Row]:
    def interval(value: dict[str, Any] | None) -> Interval | None:
        return None if value is None else Interval(**value)

    return [
        Row(**(one | {"drop": interval(one["drop"]), "speedup": interval(one["speedup"])})) for one in document["rows"]
    ]


if __name__ == "__main__":
    main()
