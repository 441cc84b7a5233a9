"""Learned rounding and corrected biases in a quantized file, layer by layer, for every kind of layer."""

from pathlib import Path

import numpy as np
import pytest
from made_nets import node, normal, run, save, split_of, sqnr

from compress.quantize.adjust import adjust, apply_, coded_layers
from compress.quantize.graph import load_graph, save_graph
from compress.quantize.ort import quantize_static
from compress.quantize.ranges import calibrate
from compress.quantize.schemes import SCHEMES

OP_TYPES = ("Conv", "MatMul", "Gemm")
SHAPES = {"conv": [6, 9, 9], "depthwise": [6, 9, 9], "grouped": [6, 9, 9], "matmul": [12], "gemm": [12]}


def net(path: Path, kind: str) -> Path:
    if kind in ("matmul", "gemm"):
        values = {"w": normal(0, 12, 8), "b": normal(1, 8)}
        product = node("MatMul", ["x", "w"], "y") if kind == "matmul" else node("Gemm", ["x", "w", "b"], "y")
        return save(path, [product], values, [12], [8])
    groups = {"conv": 1, "depthwise": 6, "grouped": 2}[kind]
    values = {"w": normal(0, 6, 6 // groups, 3, 3), "b": normal(1, 6)}
    convolution = node("Conv", ["x", "w", "b"], "y", group=groups, pads=[1, 1, 0, 2], strides=[2, 1])
    return save(path, [convolution], values, [6, 9, 9], [6, 4, 9])


def correlated(kind: str, seed: int, samples: int = 64) -> np.ndarray:
    """Inputs of one sign whose channels go together, as after a ReLU: where rounding to nearest is far from best."""
    x = np.abs(normal(seed, samples, *SHAPES[kind]))
    return (x + 3 * np.abs(normal(seed + 1, samples, *([1] * len(SHAPES[kind]))))).astype(np.float32)


def quantized(folder: Path, kind: str, scheme: str, x: np.ndarray) -> tuple[Path, Path]:
    source, target = net(folder / "m.onnx", kind), folder / "q.onnx"
    chosen = next(one for one in SCHEMES if one.name == scheme)
    quantize_static(source, target, chosen, calibrate(source, split_of(x), OP_TYPES), OP_TYPES, [])
    return source, target


@pytest.mark.parametrize("scheme", ["u8s8-channel-reduced", "u8s8-tensor", "u8u8-tensor"])
@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_learned_rounding_loses_less_of_every_kind_of_layer(tmp_path, kind, scheme):
    x, unseen = correlated(kind, 3), correlated(kind, 50)
    source, target = quantized(tmp_path, kind, scheme, x)
    before = run(target, unseen, optimise=False)
    adjusted, left = adjust(source, target, split_of(x), learn=True, on_layer=lambda _done, _total: None)
    assert not left
    graph = load_graph(target)
    codes = next(iter(coded_layers(graph, load_graph(source)).values()))[1].codes
    apply_(graph, load_graph(source), adjusted, bias=False)
    save_graph(graph, tmp_path / "a.onnx")
    (one,) = adjusted.values()
    assert one.loss_left < 0.9
    assert codes.min() <= one.codes.min()
    assert one.codes.max() <= codes.max()
    reference = run(source, unseen)
    # The activation's own rounding stays, so the whole gains less than the weight.
    assert sqnr(reference, run(tmp_path / "a.onnx", unseen, optimise=False)) > sqnr(reference, before)


def test_corrected_biases_bring_the_mean_of_each_channel_back(tmp_path):
    x = correlated("conv", 3, samples=200)
    source, target = quantized(tmp_path, "conv", "u8s8-tensor", x)
    adjusted, _ = adjust(source, target, split_of(x), learn=False, on_layer=lambda _done, _total: None)
    graph = load_graph(target)
    assert apply_(graph, load_graph(source), adjusted, bias=True) == 1
    save_graph(graph, tmp_path / "b.onnx")
    reference = run(source, x).mean(axis=(0, 2, 3))
    off = {
        name: np.abs(run(tmp_path / f"{name}.onnx", x, optimise=False).mean(axis=(0, 2, 3)) - reference).mean()
        for name in ("q", "b")
    }
    assert off["b"] < 0.5 * off["q"]


def test_only_biases_change_where_rounding_is_not_learned(tmp_path):
    x = correlated("conv", 3)
    source, target = quantized(tmp_path, "conv", "u8s8-channel-reduced", x)
    adjusted, _ = adjust(source, target, split_of(x), learn=False, on_layer=lambda _done, _total: None)
    graph = load_graph(target)
    (_, coded) = next(iter(coded_layers(graph, load_graph(source)).values()))
    (one,) = adjusted.values()
    assert (one.codes == coded.codes).all()
    assert one.loss_left == 1.0


def test_what_cannot_be_laid_out_as_rows_is_left_with_the_reason(tmp_path):
    values = {"w": normal(0, 4, 3, 3)}
    source = save(tmp_path / "m.onnx", [node("Conv", ["x", "w"], "y")], values, [3, 9], [4, 7])
    x = normal(1, 20, 3, 9)
    chosen = SCHEMES[0]
    quantize_static(source, tmp_path / "q.onnx", chosen, calibrate(source, split_of(x), OP_TYPES), OP_TYPES, [])
    adjusted, left = adjust(source, tmp_path / "q.onnx", split_of(x), learn=True, on_layer=lambda _done, _total: None)
    assert not adjusted
    assert left == ["n0/Conv: a convolution over 1 axes is left at nearest"]
