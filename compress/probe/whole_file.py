"""Quantization, probed on the whole file: its ranges are made up, its kernels are not.

A quantized file runs as fast whatever its scales are, so ranges from the probe's own inputs are enough to time it.
Conversions, fusions and layouts are then those of the real file, which no set of single kernels has.
"""

import tempfile
from pathlib import Path

import numpy as np

from compress.data import Split
from compress.errors import InputError
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.measure.stats import Interval
from compress.probe.methods import Method
from compress.probe.sites import Net
from compress.probe.task import Found, Task
from compress.quantize.ort import op_types_for, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import SCHEMES, Scheme

# The safest scheme of each kind; the ladder tries the others, and may find a faster one.
SCHEME_OF: dict[str, Scheme] = {
    kind: next(scheme for scheme in SCHEMES if scheme.kind == kind) for kind in ("static", "dynamic")
}
# Of the budget, what is left for timing after quantizing, an A/A run included.
SHORTEST_SECONDS = 0.5
FEWEST_BLOCKS = 10


def predict(task: Task, method: Method) -> Found:
    """Quantize the file with ranges of `task.feeds`, and time it beside the float one within what is left."""
    net, scheme = Net(task.path, task.feeds), SCHEME_OF[method.kind]
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        made = Path(folder) / "probe.onnx"
        try:
            _quantize(task, net, scheme, made)
        except InputError as error:
            return Found(note=f"nothing of the file can be quantized so: {error.fact}")
        # An A/A run comes before the pair, and takes as long.
        seconds = max(SHORTEST_SECONDS, task.left() / 2)
        bench = isolated.Bench(
            provider=task.bench.provider, threads=task.bench.threads, tries=1,
            plan=Plan(seconds=seconds, min_blocks=FEWEST_BLOCKS),
        )  # fmt: skip
        found = isolated.compare_files(task.path, made, task.feeds, bench)
    note = f"the whole file as {scheme.name}, with made-up ranges: its speed, and nothing about its accuracy"
    return Found(speedup=Interval(**found["ratio"]), covered_share=1.0, note=note)


def _quantize(task: Task, net: Net, scheme: Scheme, target: Path) -> None:
    if scheme.kind == "dynamic":
        quantize_dynamic(task.path, target, scheme, [])
        return
    count = len(next(iter(task.feeds.values())))
    split = Split("probe", (task.feeds, np.zeros(count, np.int64)), np.arange(count))
    op_types = op_types_for(linear_heavy=net.linear_heavy)
    ranges = calibrate(task.path, split, op_types)
    quantize_static(task.path, target, scheme, ranges, op_types, mask_nodes(task.path, ranges))
