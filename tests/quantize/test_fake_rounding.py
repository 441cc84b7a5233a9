"""Fake quantization against ONNX Runtime's own QuantizeLinear and DequantizeLinear, bit for bit."""

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from compress.quantize.fake import WeightGrid, activation_scale, best_scale, fake_quantize, weight_scale
from compress.quantize.grid import limit_of, on_grid, scale_of
from compress.quantize.imitate import weight_grid
from compress.quantize.schemes import SCHEMES, narrowed

TYPES = {"u8": (np.uint8, TensorProto.UINT8, 0, 255), "s8": (np.int8, TensorProto.INT8, -128, 127)}


def ort_roundtrip(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int = 0) -> np.ndarray:
    """x: any shape; scale, zero_point: () or (x.shape[axis],)."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(x.shape))],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero_point, "z")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(list(TYPES)), seed=st.integers(0, 10**6), spread=st.floats(1e-3, 1e4),
    shift=st.floats(-2, 2), size=st.integers(1, 400),
)  # fmt: skip
def test_activations_are_rounded_as_onnx_runtime_rounds_them(kind, seed, spread, shift, size):
    dtype, _, qmin, qmax = TYPES[kind]
    x = (np.random.default_rng(seed).normal(shift, 1, size) * spread).astype(np.float32)
    scale, zero_point = activation_scale(float(np.quantile(x, 0.1)), float(np.quantile(x, 0.9)), qmin, qmax)
    expected = ort_roundtrip(x, np.array(scale, dtype=np.float32), np.array(zero_point, dtype=dtype))
    found = fake_quantize(torch.from_numpy(x), torch.tensor(scale), torch.tensor(float(zero_point)), qmin, qmax)
    assert np.array_equal(found.numpy(), expected)


def test_halves_go_to_the_even_neighbour_and_the_ends_are_clamped():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 300.0, -300.0])
    found = fake_quantize(x, torch.tensor(1.0), torch.tensor(3.0), 0, 255)
    assert found.tolist() == [0, 2, 2, 0, -2, 252, -3]


@given(low=st.floats(-50, 50, width=32), high=st.floats(-50, 50, width=32))
def test_a_range_always_holds_zero_exactly(low: float, high: float):
    scale, zero_point = activation_scale(min(low, high), max(low, high), 0, 255)
    assert scale > 0
    assert 0 <= zero_point <= 255
    zero = fake_quantize(torch.zeros(1), torch.tensor(scale), torch.tensor(float(zero_point)), 0, 255)
    assert float(zero) == 0


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), per_channel=st.booleans(), name=st.sampled_from([s.name for s in SCHEMES[:5]]))
def test_weights_are_rounded_as_the_quantizer_rounds_them(seed: int, per_channel: bool, name: str):
    from onnxruntime.quantization.quant_utils import QuantType, quantize_data

    scheme = next(scheme for scheme in SCHEMES if scheme.name == name)
    kind = QuantType.QInt8 if scheme.weight == "s8" else QuantType.QUInt8
    weight = np.random.default_rng(seed).normal(0.1, 1, (4, 3, 3, 3)).astype(np.float32)
    channels = [weight] if not per_channel else [weight[i] for i in range(4)]
    rows = []
    for part in channels:
        zero, scale, q = quantize_data(part.ravel(), kind.tensor_type, scheme.weight == "s8", scheme.reduced)
        rows.append((q.astype(np.float32) - np.float32(zero)) * np.float32(scale))
    grid = weight_grid(scheme, 0 if per_channel else None)
    tensor = torch.from_numpy(weight)
    found = fake_quantize(tensor, *weight_scale(tensor, grid), grid.qmin, grid.qmax)
    assert np.array_equal(found.numpy().ravel(), np.concatenate(rows).ravel())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), bits=st.sampled_from([4, 3]), per_channel=st.booleans())
def test_narrow_weights_are_those_that_the_file_stores(seed: int, bits: int, per_channel: bool):
    weight = np.random.default_rng(seed).normal(0, 1, (5, 7)).astype(np.float32)
    axis, limit = (0 if per_channel else None), limit_of(bits)
    scale = scale_of(weight, axis, limit)
    stored = on_grid(weight, scale, axis, limit)
    assert np.abs(stored).max() == limit
    grid = weight_grid(narrowed(SCHEMES[1], bits), axis)
    assert (grid.qmin, grid.qmax) == (-limit, limit)
    tensor = torch.from_numpy(weight)
    found = fake_quantize(tensor, *weight_scale(tensor, grid), grid.qmin, grid.qmax)
    shown = scale if axis is None else scale[:, None]
    assert np.array_equal(found.numpy(), stored.astype(np.float32) * shown)


@pytest.mark.parametrize("axis", [None, 0])
def test_a_weight_of_zeros_stays_zero(axis):
    grid = WeightGrid(qmin=-7, qmax=7, symmetric=True, axis=axis)
    scale, zero = weight_scale(torch.zeros(3, 4), grid)
    assert torch.equal(fake_quantize(torch.zeros(3, 4), scale, zero, -7, 7), torch.zeros(3, 4))


@given(seed=st.integers(0, 999), outlier=st.floats(1, 60), axis=st.sampled_from([None, 0]))
def test_the_best_scale_is_never_worse_than_the_widest_value(seed: int, outlier: float, axis: int | None):
    weight = torch.from_numpy(np.random.default_rng(seed).normal(0, 1, (4, 50)).astype(np.float32))
    weight[0, 0] = outlier
    grid = WeightGrid(qmin=-7, qmax=7, symmetric=True, axis=axis)
    zero = torch.zeros(())

    def error(scale: torch.Tensor) -> torch.Tensor:
        return (fake_quantize(weight, scale, zero, -7, 7) - weight).square().sum(dim=1 if axis == 0 else (0, 1))

    assert (error(best_scale(weight, grid)) <= error(weight_scale(weight, grid)[0]) + 1e-6).all()


def test_gradients_pass_inside_the_range_and_stop_outside():
    x = torch.tensor([0.2, 3.0, -5.0, 900.0], requires_grad=True)
    fake_quantize(x, torch.tensor(0.5), torch.tensor(4.0), 0, 255).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 0, 0]


def test_a_scale_learns_by_the_rule_of_learned_step_sizes():
    """Inside: round(x / s) - x / s; clamped: the end of the grid. Esser et al. 2020, equation 3."""
    scale = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([0.2, 0.9, 80.0, -80.0])
    for value, expected in zip(x, [0 - 0.4, 2 - 1.8, 7, -7], strict=True):
        scale.grad = None
        fake_quantize(value, scale, torch.tensor(0.0), -7, 7).backward()
        assert float(scale.grad) == pytest.approx(expected, abs=1e-6)
