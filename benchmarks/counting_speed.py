"""Counting and bounding ResNet-50 against FlopCounterMode plus fvcore, in turns, imports aside. Repeat with:

pip install fvcore; python benchmarks/counting_speed.py

Writes benchmarks/results/counting_speed.json. `analyze` here is the whole table with bytes at three levels, a verdict
on bounds and every prediction; the others count multiplications. Times are of this process on the CPU.
"""

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "analyze"))

from nets import resnet50  # noqa: E402  # the net that the counting tests use

from compress.analyze.methods import Asked  # noqa: E402
from compress.analyze.trace import trace  # noqa: E402
from compress.device.devices import device_named  # noqa: E402
from compress.stages.verdict import judge_table  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "counting_speed.json"
ROUNDS = 7


def analyzed(net: nn.Module, images: torch.Tensor) -> int:
    table = trace(net, (images,))
    judge_table(table, device_named("epyc-7763"), None, Asked())
    return table.macs


def with_flop_counter(net: nn.Module, images: torch.Tensor) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(images)
    return counter.get_total_flops() // 2


def with_fvcore(net: nn.Module, images: torch.Tensor) -> int:
    from fvcore.nn import FlopCountAnalysis

    return int(FlopCountAnalysis(net, images).total())


def main() -> None:
    logging.getLogger("fvcore").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    net, images = resnet50().eval(), torch.rand(1, 3, 224, 224)
    ways: dict[str, Callable[[nn.Module, torch.Tensor], int]] = {
        "compress analyze": analyzed,
        "FlopCounterMode": with_flop_counter,
        "fvcore": with_fvcore,
    }
    macs = {name: way(net, images) for name, way in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            way(net, images)
            seconds[name].append(time.process_time() - start)
    both = np.array(seconds["FlopCounterMode"]) + np.array(seconds["fvcore"])
    ratio = np.array(seconds["compress analyze"]) / both
    document = {
        "macs": macs,
        "seconds": {name: {"median": float(np.median(row)), "all": row} for name, row in seconds.items()},
        "ratio_to_both": {"median": float(np.median(ratio)), "low": float(ratio.min()), "high": float(ratio.max())},
        "n": ROUNDS,
        "torch": torch.__version__,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    for name in ways:
        print(f"{name}: {np.median(seconds[name]):.3f} s, {macs[name]:,} macs")
    print(f"compress over both: {np.median(ratio):.2f} [{ratio.min():.2f}, {ratio.max():.2f}] (n={ROUNDS})")


if __name__ == "__main__":
    main()
