"""A net that was pruned by half, and was no faster: its time was in transposes and copies all along."""

import numpy as np
import pytest
import torch
from torch import nn

from compress.analyze import count
from compress.analyze.methods import Asked
from compress.device.devices import device_named
from compress.export.onnx import export_onnx
from compress.measure.isolated import Bench, compare_files, profile
from compress.measure.latency import Plan
from compress.measure.stats import percentile
from compress.stages.verdict import Timed, judge_file

WIDTH, SIDE, BLOCKS = 64, 28, 2
BENCH = Bench(provider="cpu", threads=1, plan=Plan(seconds=2.0))


class TurnedBlock(nn.Module):
    """A narrow bottleneck beside its input, in a net that turns its maps and shuffles their channels between blocks."""

    def __init__(self, hidden):
        super().__init__()
        self.down, self.up = nn.Conv2d(WIDTH, hidden, 1), nn.Conv2d(hidden, WIDTH, 1)

    def forward(self, maps):
        maps = maps + self.up(torch.relu(self.down(maps)))
        for groups in (2, 4, 8, 16, 32) * 2:
            maps = shuffled(maps, groups).transpose(2, 3).contiguous()
        return maps


def shuffled(maps, groups):
    n, channels, height, width = maps.shape
    return maps.view(n, groups, channels // groups, height, width).transpose(1, 2).reshape(maps.shape)


def turned(hidden):
    torch.manual_seed(0)
    blocks = [TurnedBlock(hidden) for _ in range(BLOCKS)]
    return nn.Sequential(nn.Conv2d(1, WIDTH, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 10))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tale")
    images = np.random.default_rng(0).standard_normal((2, 1, SIDE, SIDE)).astype(np.float32)
    paths = {}
    for hidden in (16, 8):
        paths[hidden] = folder / f"hidden{hidden}.onnx"
        export_onnx(turned(hidden).eval(), {"input": images}, paths[hidden], ["output"])
    return paths, {"input": images[:1]}


def test_half_the_channels_are_predicted_to_give_almost_nothing_and_measuring_agrees(files):
    paths, feeds = files
    whole = percentile(np.array(compare_files(paths[16], paths[16], feeds, BENCH)["b_ms"]), 50)
    timed = Timed(end_to_end_ms=whole, kernels=profile(paths[16], feeds, BENCH), batch=1)
    # The sheet of another CPU: what the verdict rests on here is where the time goes, not the height of the roofs.
    judged = judge_file(paths[16], timed, device_named("epyc-7763"), Asked(), {"input": feeds["input"].shape})
    assert judged.verdict.class_ == "movement"
    pruned = next(one for one in judged.predictions if one.name == "prune 50%")
    blocks = [count(turned(hidden)[1:-3], torch.rand(1, WIDTH, SIDE, SIDE)).macs for hidden in (16, 8)]
    assert blocks[0] == 2 * blocks[1]
    assert pruned.expected < 1.25
    # Both files in turns on whatever machine this is: half of the work gone, and most of the time still there.
    measured = compare_files(paths[16], paths[8], feeds, BENCH)["ratio"]
    assert measured["low"] < 1.25
    told = " ".join(one["sentence"] for one in judged.analysis["verdict"]["advice"])
    assert "do not compress" in told
    assert "pruning leaves the copies where they are" in told
