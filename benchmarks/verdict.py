"""Predicted beside measured: what the verdict, its expectations and its probes say before the work, and what came.

python benchmarks/verdict.py [--quick]

Every row is a net, a batch size and a method. *Measured* is the really transformed file (quantized, pruned with
torch-pruning, weights in blocks, or a larger batch) timed interleaved with the float file. Writes
benchmarks/results/verdict.json and the tables in docs/verdict-benchmark.md and README.md; wrong rows stay in them.
"""

import argparse
import copy
import json
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compress import zoo
from compress.analyze.methods import Asked
from compress.data import Array, Split
from compress.device import facts
from compress.device.ceilings import Ceilings
from compress.export.onnx import export_onnx
from compress.measure.isolated import Bench, batch_times, compare_files, profile
from compress.measure.latency import Plan
from compress.measure.stats import Interval, ratio_of_medians
from compress.probe.probe import probe
from compress.probe.sites import Net
from compress.quantize.ort import op_types_for, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import SCHEMES
from compress.stages.verdict import Judged, Timed, ceilings_of_this_machine, elasticity_of, judge_file, undisturbed

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "verdict.json", ROOT / "docs" / "verdict-benchmark.md"
START, END = "<!-- table -->", "<!-- /table -->"
README, README_START, README_END = ROOT / "README.md", "<!-- verdict -->", "<!-- /verdict -->"
BENCH = Bench(provider="cpu", threads=1, plan=Plan(seconds=3.0))
PROBE_SECONDS = 10.0
# Closer to 1 than this, a speed-up is no difference.
DEAD_BAND = 0.05
# A probe that speaks for less of the time than this does not overrule the expectation.
COVERED = 0.5
# The prediction that each probe belongs to.
PREDICTIONS = {
    "int8": "int8 W8A8",
    "dynamic-int8": "int8 dynamic",
    "weights-int8": "int8 weight-only",
    "weights-int4": "int4 weight-only g128",
    "prune-50": "prune 50%",
    "batch-8": "batch 8",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A net and one input sample (1, ...) for it; cases: (batch, method) to try."""

    name: str
    build: Callable[[], nn.Module]
    sample: Callable[[int], Array]
    cases: tuple[tuple[int, str], ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case. hard, expected, probe, measured: speed-ups over the float file."""

    net: str
    batch: int
    method: str
    verdict: str
    hard: float | None
    expected: float
    probe: Interval | None
    covered: float
    measured: Interval

    @property
    def answer(self) -> float:
        """What the tool says in the end: the probe where it speaks for enough of the time, else the expectation."""
        return self.probe.value if self.probe and self.covered >= COVERED else self.expected

    @property
    def sign_right(self) -> bool:
        """Whether faster, slower or no difference was said; where the interval crosses a line, both sides are right."""
        ends = {_sign(self.measured.low), _sign(self.measured.value), _sign(self.measured.high)}
        return _sign(self.answer) in ends

    @property
    def ceiling_held(self) -> bool:
        return self.hard is None or self.measured.low <= self.hard

    def cells(self) -> list[str]:
        probed = "-" if self.probe is None else f"{_span(self.probe)}, {self.covered:.0%}"
        return [
            self.net, str(self.batch), self.method, self.verdict, "-" if self.hard is None else f"{self.hard:.2f}",
            f"{self.expected:.2f}", probed, f"{_span(self.measured)} ({self.measured.n})",
            "yes" if self.sign_right else "**no**", "yes" if self.ceiling_held else "**no**",
        ]  # fmt: skip

    def short_cells(self) -> list[str]:
        most = "-" if self.hard is None else f"{self.hard:.1f}x"
        right = "yes" if self.sign_right and self.ceiling_held else "**no**"
        return [self.net, str(self.batch), self.method, most, f"{self.answer:.2f}x", f"{_span(self.measured)}", right]


def subjects() -> list[Subject]:
    """The nets, small ones of the zoo and larger ones with random weights, which only speed is asked of."""
    fashion = _first_of(zoo.fashion_mnist)
    digits = _first_of(zoo.digits)
    return [
        Subject(name="digits_cnn", build=zoo.digits_cnn, sample=digits, cases=((1, "int8"), (8, "int8"))),
        Subject(
            name="fashion_resnet", build=zoo.fashion_resnet, sample=fashion,
            cases=((1, "int8"), (8, "int8"), (1, "prune-50"), (1, "batch-8")),
        ),
        Subject(
            name="fashion_mobile", build=zoo.fashion_mobile, sample=fashion,
            cases=((1, "int8"), (8, "int8"), (1, "prune-50")),
        ),
        Subject(
            name="digits_encoder", build=zoo.digits_encoder, sample=digits,
            cases=((1, "int8"), (1, "dynamic-int8"), (32, "dynamic-int8")),
        ),
        Subject(name="digits_deep", build=zoo.digits_deep, sample=digits, cases=((1, "int8"), (1, "batch-8"))),
        Subject(
            name="digits_axial", build=zoo.digits_axial, sample=digits,
            cases=((1, "int8"), (1, "prune-50"), (1, "batch-8")),
        ),
        Subject(
            name="mlp 3x2048", build=_wide, sample=_tokens(1, 2048),
            cases=((1, "weights-int8"), (1, "weights-int4"), (1, "dynamic-int8"), (1, "batch-8"), (32, "weights-int4"),
                   (32, "int8")),
        ),
        Subject(
            name="encoder 4x384", build=_encoder, sample=_tokens(32, 384),
            cases=((1, "int8"), (1, "dynamic-int8"), (8, "int8"), (1, "weights-int8")),
        ),
        Subject(name="lstm 2x256", build=_Recurrent, sample=_tokens(32, 128), cases=((1, "batch-8"),)),
    ]  # fmt: skip


def main() -> None:
    options = _parse()
    torch.set_num_threads(BENCH.threads)
    ceilings = ceilings_of_this_machine(BENCH.threads, print)
    chosen = subjects()[:1] if options.quick else subjects()
    rows = [row for subject in chosen for row in run(subject, ceilings)]
    document = document_of(rows)
    print(json.dumps(document["summary"], indent=2))
    if not options.quick:
        write(document, rows)


def run(subject: Subject, ceilings: Ceilings) -> list[Row]:
    """Every case of one net."""
    with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
        folder = Path(scratch)
        path = exported(subject.build(), subject.sample(2), folder / "float.onnx")
        judged: dict[int, Judged] = {}
        rows = []
        for batch, method in subject.cases:
            feeds = {"input": subject.sample(batch)}
            if batch not in judged:
                judged[batch] = judge(path, feeds, batch, ceilings)
            rows.append(one_case(subject, path, feeds, batch, method, judged[batch], folder))
            print(" | ".join(rows[-1].cells()), flush=True)
    return rows


def one_case(
    subject: Subject, path: Path, feeds: dict[str, Array], batch: int, method: str, judged: Judged, folder: Path
) -> Row:
    promise = next(one for one in judged.predictions if one.name == PREDICTIONS[method])
    said = probe(path, method, feeds, BENCH, PROBE_SECONDS)
    return Row(
        net=subject.name, batch=batch, method=method,
        verdict=f"{judged.verdict.class_} {judged.verdict.share:.0%}", hard=promise.hard, expected=promise.expected,
        probe=said.speedup, covered=said.covered_share, measured=measure(subject, path, feeds, method, folder),
    )  # fmt: skip


def judge(path: Path, feeds: dict[str, Array], batch: int, ceilings: Ceilings) -> Judged:
    whole, note = undisturbed(compare_files(path, path, feeds, BENCH)["b_ms"])
    timed = Timed(
        end_to_end_ms=whole, kernels=profile(path, feeds, BENCH), batch=batch,
        elasticity=elasticity_of(path, feeds, BENCH), note=note,
    )  # fmt: skip
    return judge_file(path, timed, ceilings, Asked(), {name: values.shape for name, values in feeds.items()})


def measure(subject: Subject, path: Path, feeds: dict[str, Array], method: str, folder: Path) -> Interval:
    """The real thing, timed interleaved with the float file."""
    if method == "batch-8":
        times = batch_times(path, {"input": subject.sample(8)}, [1, 8], BENCH, BENCH.plan.seconds)
        return ratio_of_medians(np.log(8 * np.array(times[1]) / np.array(times[8])))
    made = folder / f"{method}.onnx"
    if method == "prune-50":
        exported(pruned(subject.build(), subject.sample(1)), subject.sample(2), made)
    elif method.startswith("weights"):
        with_block_weights(path, made, int(method.removeprefix("weights-int")))
    elif method == "dynamic-int8":
        quantize_dynamic(path, made, next(scheme for scheme in SCHEMES if scheme.kind == "dynamic"), [])
    else:
        op_types = op_types_for(linear_heavy=Net(path, feeds).linear_heavy)
        samples = subject.sample(64)
        split = Split("calibration", ({"input": samples}, np.zeros(64, np.int64)), np.arange(64))
        ranges = calibrate(path, split, op_types)
        quantize_static(path, made, SCHEMES[0], ranges, op_types, mask_nodes(path, ranges))
    return Interval(**compare_files(path, made, feeds, BENCH)["ratio"])


def pruned(net: nn.Module, sample: Array) -> nn.Module:
    """Half the channels of every layer but the last, in whole tiles of 8, by torch-pruning."""
    import torch_pruning

    net = copy.deepcopy(net)
    heads = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1:]
    pruner = torch_pruning.pruner.MagnitudePruner(
        net, torch.from_numpy(sample), torch_pruning.importance.MagnitudeImportance(p=1), pruning_ratio=0.5,
        round_to=8, ignored_layers=heads,
    )  # fmt: skip
    pruner.step()
    return net.eval()


def with_block_weights(path: Path, made: Path, bits: int) -> None:
    """Matrix products with weights in blocks of 128, by ONNX Runtime's own quantizer."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    config = DefaultWeightOnlyQuantConfig(block_size=128, is_symmetric=True, accuracy_level=4, bits=bits)
    quantizer = MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    quantizer.process()
    onnx.save(quantizer.model.model, str(made))


def document_of(rows: list[Row]) -> dict[str, Any]:
    probed = [row for row in rows if row.probe is not None]
    errors = [abs(row.probe.value / row.measured.value - 1) for row in probed if row.probe]
    expected = [abs(row.expected / row.measured.value - 1) for row in rows]
    return {
        "summary": {
            "cases": len(rows),
            "hard_ceiling_held": sum(row.ceiling_held for row in rows),
            "sign_right": sum(row.sign_right for row in rows),
            "probe_median_error": float(np.median(errors)) if errors else None,
            "probe_n": len(errors),
            "expected_median_error": float(np.median(expected)),
        },
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": facts.cpu_facts(),
        "threads": BENCH.threads,
        "platform": platform.platform(),
        "versions": facts.versions(),
        "rows": [asdict(row) | {"sign_right": row.sign_right, "ceiling_held": row.ceiling_held} for row in rows],
    }


def write(document: dict[str, Any], rows: list[Row]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    head = ["net", "batch", "method", "verdict", "at most", "expected", "probe [99 %], covers", "measured [99 %] (n)"]
    head += ["sign right", "ceiling held"]
    lines = [head, ["---"] * len(head), *(row.cells() for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    told = document["summary"]
    summary = (
        f"{told['cases']} cases: hard ceiling held in {told['hard_ceiling_held']}, sign right in "
        f"{told['sign_right']}; median error of the probe {told['probe_median_error']:.1%} (n={told['probe_n']}), of "
        f"the expectation {told['expected_median_error']:.1%} (n={told['cases']})."
    )
    _put(PAGE, START, END, f"{summary}\n\n{table}")
    short = [["net", "batch", "method", "at most", "compress said", "measured [99 %]", "right"], ["---"] * 7]
    short += [row.short_cells() for row in rows]
    _put(README, README_START, README_END, "\n".join([summary, "", *("| " + " | ".join(row) + " |" for row in short)]))


def _put(page: Path, start: str, end: str, text: str) -> None:
    before, rest = page.read_text().split(start)
    page.write_text(f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}")


def exported(net: nn.Module, samples: Array, path: Path) -> Path:
    export_onnx(net.eval(), {"input": samples}, path, ["output"])
    return path


def _sign(speedup: float) -> int:
    return 1 if speedup > 1 + DEAD_BAND else -1 if speedup < 1 - DEAD_BAND else 0


def _span(span: Interval) -> str:
    return f"{span.value:.2f} [{span.low:.2f}, {span.high:.2f}]"


def _first_of(data: Callable[[], dict[str, tuple[Array, Array]]]) -> Callable[[int], Array]:
    images = data()["select"][0]
    return lambda count: images[:count]


def _tokens(length: int, width: int) -> Callable[[int], Array]:
    values = np.random.default_rng(0).standard_normal((64, length, width)).astype(np.float32)
    return lambda count: values[:count]


def _seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def _wide() -> nn.Module:
    return _seeded(lambda: nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(2048, 2048), nn.ReLU()))))


def _encoder() -> nn.Module:
    def build() -> nn.Module:
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, activation="gelu")
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    return _seeded(build)


class _Recurrent(nn.Module):
    """Two layers of 256 over 32 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = _seeded(lambda: nn.LSTM(128, 256, 2, batch_first=True))
        self.head = nn.Linear(256, 10)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        """steps: (n, 32, 128); returns (n, 10)."""
        return self.head(self.layers(steps)[0][:, -1])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Predicted beside measured, for many nets and methods.")
    parser.add_argument("--quick", action="store_true", help="one net, nothing written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
