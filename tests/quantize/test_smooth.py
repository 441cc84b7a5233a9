"""SmoothQuant leaves the float function alone and makes activations with outlying channels quantizable."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_nets import node, normal, relative_change, run, save, split_of, sqnr

from compress.quantize.graph import load_graph, save_graph
from compress.quantize.ort import LINEAR_OP_TYPES, quantize_static
from compress.quantize.prepare import TOLERANCE, prepare
from compress.quantize.ranges import calibrate
from compress.quantize.schemes import SCHEMES
from compress.quantize.smooth import smooth_, smooth_inputs, smoothing_scales
from compress.quantize.statistics import channel_statistics

WIDTH = 16


def encoder(path: Path, seed: int, outlier: float, *, residual: bool = False) -> Path:
    """LayerNormalization whose gain makes two channels stand out, read by two products (and by a sum)."""
    gain = np.ones(WIDTH, np.float32)
    gain[[3, 7]] = outlier
    values = {
        "gain": gain,
        "shift": normal(seed, WIDTH, scale=0.1),
        "wq": normal(seed + 1, WIDTH, WIDTH),
        "wk": normal(seed + 2, WIDTH, WIDTH),
    }
    nodes = [
        node("LayerNormalization", ["x", "gain", "shift"], "n", axis=-1),
        node("MatMul", ["n", "wq"], "q"),
        node("Gemm", ["n", "wk"], "k", transB=1),
        node("Mul", ["q", "k"], "m" if residual else "y"),
    ]
    if residual:
        nodes.append(node("Add", ["m", "n"], "y"))
    return save(path, nodes, values, [WIDTH], [WIDTH])


def smoothed(source: Path, target: Path, x: np.ndarray):
    graph = load_graph(source)
    done = smooth_(graph, channel_statistics(source, split_of(x), smooth_inputs(graph)))
    save_graph(graph, target)
    onnx.checker.check_model(str(target))
    return done


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), outlier=st.floats(8, 300), residual=st.booleans())
def test_the_float_function_stays_what_it_is(tmp_path_factory, seed, outlier, residual):
    folder = tmp_path_factory.mktemp("smooth")
    source = encoder(folder / "m.onnx", seed, outlier, residual=residual)
    x = normal(seed + 5, 20, WIDTH)
    done = smoothed(source, folder / "s.onnx", x)
    assert bool(done.folded) is not residual
    assert bool(done.inserted) is residual
    assert relative_change(run(source, x), run(folder / "s.onnx", x)) < TOLERANCE


def test_outlying_channels_cost_less_once_they_are_in_the_weights(tmp_path):
    source, x = encoder(tmp_path / "m.onnx", 0, 100.0), normal(1, 200, WIDTH)
    smoothed(source, tmp_path / "s.onnx", x)
    scheme, reference, found = SCHEMES[0], run(source, x), {}
    for name in ("m", "s"):
        path = tmp_path / f"{name}.onnx"
        ranges = calibrate(path, split_of(x), LINEAR_OP_TYPES)
        quantize_static(path, tmp_path / "q.onnx", scheme, ranges, LINEAR_OP_TYPES, [])
        found[name] = sqnr(reference, run(tmp_path / "q.onnx", x))
    assert found["s"] > found["m"] + 2


def test_without_outliers_nothing_is_touched_and_the_reason_is_given(tmp_path):
    source, x = encoder(tmp_path / "m.onnx", 0, 1.0), normal(1, 50, WIDTH)
    facts = prepare(source, tmp_path / "s.onnx", "smooth", split_of(x))
    assert facts["changed"] is False
    assert "no activation has outlying channels" in facts["remarks"][0]
    assert load_graph(tmp_path / "s.onnx").proto.graph == load_graph(source).proto.graph


def test_scales_balance_both_sides_and_spare_dead_channels():
    activations, weights = np.array([100.0, 1.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0, 0.0])
    scales = smoothing_scales(activations, weights)
    assert scales[2] == scales[3] == 1.0
    assert scales[0] / scales[1] == pytest.approx(10)
