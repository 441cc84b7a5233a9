"""What the note of a candidate says about the weights it was made from."""

import sys
from pathlib import Path

import numpy as np

from compress.stages.ptq_try import dead_note, spread_note

sys.path.insert(0, str(Path(__file__).parents[1] / "quantize"))

from made_nets import node, save


def conv(folder, weight):
    channels = list(weight.shape[:2])
    return save(
        folder / "m.onnx", [node("Conv", ["x", "w"], "y")], {"w": weight}, [channels[1], 5, 5], [channels[0], 3, 3]
    )


def weights(*factors):
    """One output channel for each factor, all of the same random numbers."""
    one = np.random.default_rng(0).normal(0, 1, (3, 3, 3)).astype(np.float32)
    return np.stack([np.float32(factor) * one for factor in factors])


def test_channels_without_a_weight_are_counted_and_named(tmp_path):
    told = dead_note(conv(tmp_path, weights(1, 0, 2, 0)))
    assert "2 of n0/Conv" in told
    assert "pruning" in told


def test_a_net_whose_channels_all_hold_something_is_not_spoken_of(tmp_path):
    assert dead_note(conv(tmp_path, weights(1, 1e-9, 2))) == ""


def test_a_dead_channel_does_not_count_as_a_narrow_one(tmp_path):
    assert spread_note(conv(tmp_path, weights(1, 0, 1, 1))) == ""


def test_a_channel_far_wider_than_the_others_is_named_with_its_factor(tmp_path):
    assert "n0/Conv 40x" in spread_note(conv(tmp_path, weights(1, 40, 1, 1)))
