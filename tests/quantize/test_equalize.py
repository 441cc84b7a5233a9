"""Equalisation leaves the float function alone and brings channels to the same range; what it cannot do it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_nets import bottleneck, node, normal, relative_change, run, save, split_of, sqnr

from compress.quantize.equalize import (
    channel_ranges,
    clip_inputs,
    equalize_,
    find_pairs,
    scales_of,
    spread_of,
    widest_spread,
)
from compress.quantize.graph import load_graph, save_graph
from compress.quantize.ort import CONV_OP_TYPES, quantize_static
from compress.quantize.prepare import TOLERANCE, prepare
from compress.quantize.ranges import calibrate
from compress.quantize.schemes import SCHEMES
from compress.quantize.statistics import channel_statistics

BY_NAME = {scheme.name: scheme for scheme in SCHEMES}
UNLIKE = np.geomspace(1, 1000, 12)


def equalised(source, target, x):
    graph = load_graph(source)
    pairs, _ = find_pairs(graph)
    done = equalize_(graph, channel_statistics(source, split_of(x), clip_inputs(pairs)))
    save_graph(graph, target)
    return done


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), power=st.floats(0, 3))
def test_the_float_function_stays_what_it_is(tmp_path_factory, seed, power):
    folder = tmp_path_factory.mktemp("equalize")
    factors = 10 ** np.random.default_rng(seed).uniform(-power, power, 12)
    source = bottleneck(folder / "m.onnx", seed, factors, ["Relu", "LeakyRelu", "Clip"][seed % 3])
    x = normal(seed + 9, 16, 3, 8, 8)
    equalised(source, folder / "e.onnx", x)
    assert relative_change(run(source, x), run(folder / "e.onnx", x)) < TOLERANCE


def test_both_sides_of_a_pair_end_with_the_same_range_per_channel(tmp_path):
    source = bottleneck(tmp_path / "m.onnx", 0, np.random.default_rng(5).permutation(UNLIKE))
    done = equalised(source, tmp_path / "e.onnx", normal(1, 8, 3, 8, 8))
    assert done.pairs == ("n0/Conv -> n2/Conv", "n2/Conv -> n4/Conv")
    graph = load_graph(tmp_path / "e.onnx")
    first, middle, last = (graph.constant(name) for name in ("w1", "w2", "w3"))
    assert channel_ranges(first, 0) == pytest.approx(channel_ranges(middle, 0), rel=0.02)
    assert channel_ranges(middle, 0) == pytest.approx(channel_ranges(last, 1), rel=0.02)
    assert done.spread_after < 2 < 7 < done.spread_before


def test_per_tensor_int8_collapses_on_unlike_channels_and_equalisation_restores_it(tmp_path):
    x = normal(1, 64, 3, 8, 8)
    source = bottleneck(tmp_path / "m.onnx", 0, np.random.default_rng(5).permutation(UNLIKE))
    equalised(source, tmp_path / "e.onnx", x)
    reference, found = run(source, x), {}
    for name in ("m", "e"):
        path = tmp_path / f"{name}.onnx"
        ranges = calibrate(path, split_of(x), CONV_OP_TYPES)
        quantize_static(path, tmp_path / "q.onnx", BY_NAME["u8u8-tensor"], ranges, CONV_OP_TYPES, [])
        found[name] = sqnr(reference, run(tmp_path / "q.onnx", x, optimise=False))
    assert found["m"] < 12
    assert found["e"] > found["m"] + 12


def test_a_clip_that_is_reached_keeps_its_channels(tmp_path):
    x = normal(1, 16, 3, 8, 8, scale=8.0)
    source = bottleneck(tmp_path / "m.onnx", 0, np.ones(12), "Clip")
    equalised(source, tmp_path / "e.onnx", x)
    assert relative_change(run(source, x), run(tmp_path / "e.onnx", x)) < TOLERANCE


def test_preparing_checks_the_function_on_samples_whose_statistics_were_not_used(tmp_path):
    quiet, loud = normal(1, 16, 3, 8, 8, scale=0.2), normal(2, 16, 3, 8, 8, scale=20.0)
    source = bottleneck(tmp_path / "m.onnx", 0, np.geomspace(1, 30, 12), "Clip")
    facts = prepare(source, tmp_path / "e.onnx", "equalize", split_of(np.concatenate([quiet, loud])))
    assert facts["max_change"] < TOLERANCE
    assert "a Clip" in " ".join(facts["remarks"])


def test_dead_channels_keep_their_scale():
    first, second = np.array([0.0, 1.0, 4.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
    assert scales_of(first, second) == pytest.approx([1, 1, 2, 1])
    assert spread_of(np.zeros((3, 2, 1, 1)), 0) == 1.0


def pair_with(path, between, values=None, second=None):
    weights = {"w1": normal(0, 4, 3, 1, 1), "w2": normal(1, 4, 4, 1, 1)} | (values or {})
    nodes = [node("Conv", ["x", "w1"], "a"), *between, second or node("Conv", ["m", "w2"], "y")]
    return load_graph(save(path, nodes, weights, [3, 4, 4], [4, 4, 4]))


@pytest.mark.parametrize(
    ("between", "values", "second", "why"),
    [
        ([node("Sigmoid", ["a"], "m")], None, None, "Sigmoid is not positively homogeneous"),
        ([node("Relu", ["a"], "m")], {"w2": normal(1, 4, 2, 1, 1)}, node("Conv", ["m", "w2"], "y", group=2), "grouped"),
        (
            [node("Clip", ["a", "low", "high"], "m")],
            {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)},
            None,
            "does not clip between zero and a constant",
        ),
        (
            [node("Relu", ["a"], "r"), node("Conv", ["r", "w3"], "s"), node("Add", ["r", "s"], "m")],
            {"w3": normal(2, 4, 4, 1, 1)},
            None,
            "goes to 2 places",
        ),
    ],
)
def test_what_cannot_be_equalised_is_refused_with_the_reason(tmp_path, between, values, second, why):
    pairs, refused = find_pairs(pair_with(tmp_path / "m.onnx", between, values, second))
    assert not [pair for pair in pairs if pair.first.node == "n0/Conv"]
    assert any(why in reason for reason in refused), refused


def test_a_shared_weight_is_refused(tmp_path):
    weights = {"w": normal(0, 3, 3, 1, 1)}
    nodes = [node("Conv", ["x", "w"], "a"), node("Relu", ["a"], "b"), node("Conv", ["b", "w"], "y")]
    pairs, refused = find_pairs(load_graph(save(tmp_path / "m.onnx", nodes, weights, [3, 4, 4], [3, 4, 4])))
    assert not pairs
    assert "shared" in refused[0]


def test_the_spread_is_that_of_the_widest_channel_against_the_median(tmp_path):
    weight = np.ones((5, 2, 1, 1), np.float32) * np.array([1, 1, 1, 1, 50], np.float32)[:, None, None, None]
    source = save(tmp_path / "m.onnx", [node("Conv", ["x", "w"], "y")], {"w": weight}, [2, 4, 4], [5, 4, 4])
    assert widest_spread(load_graph(source)) == 50
