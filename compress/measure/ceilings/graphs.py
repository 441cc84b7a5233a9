"""Small ONNX graphs around one kernel each, as the stages' quantizers leave them after fusion."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET = 17
IR_VERSION = 8
# u8s8 sums saturate at 16 bits on CPUs without VNNI, so weights keep 7 bits: see docs/design/ptq.md.
S8_LIMIT = 64
Arrays = dict[str, Any]  # NumPy arrays and scalars by name


def float_product(size: int) -> "ModelProto":
    """y = x @ w, both (size, size), float32."""
    return _model([_node("MatMul", ["x", "w"], "y")], {"w": _floats(size, size)}, (size, size), "float32")


def integer_product(size: int) -> "ModelProto":
    """y = x @ w, both (size, size): u8 activations, s8 weights with a scale per column, u8 out."""
    scales = {"one": np.float32(0.02), "zero": np.uint8(128), "ws": np.full(size, 0.01, np.float32)}
    values: Arrays = {"w": _s8(size, size), "wz": np.zeros(size, np.int8), **scales}
    node = _node("QLinearMatMul", ["x", "one", "zero", "w", "ws", "wz", "one", "zero"], "y")
    return _model([node], values, (size, size), "uint8")


def dynamic_product(size: int) -> "ModelProto":
    """y = x @ w, both (size, size): float32 in and out, 8-bit inside, as dynamic quantization runs it."""
    nodes = [
        _node("DynamicQuantizeLinear", ["x"], "xq", "xs", "xz"),
        _node("MatMulInteger", ["xq", "w", "xz", "wz"], "sums"),
        _to_float("sums", "sums_float"),
        _node("Mul", ["xs", "ws"], "scale"),
        _node("Mul", ["sums_float", "scale"], "y"),
    ]
    values: Arrays = {"w": _s8(size, size), "ws": np.full(1, 0.01, np.float32), "wz": np.zeros(1, np.int8)}
    return _model(nodes, values, (size, size), "float32")


def float_conv(channels: int, side: int) -> "ModelProto":
    """3x3 convolution with bias, stride 1: x (1, channels, side, side), as many channels out, float32."""
    values = {"w": _floats(channels, channels, 3, 3), "b": _floats(channels)}
    node = _node("Conv", ["x", "w", "b"], "y", pads=[1, 1, 1, 1])
    return _model([node], values, (1, channels, side, side), "float32")


def integer_conv(channels: int, side: int) -> "ModelProto":
    """The same with u8 activations, s8 weights with a scale per output channel, s32 bias."""
    scales = {"one": np.float32(0.02), "zero": np.uint8(128), "ws": np.full(channels, 0.01, np.float32)}
    weights = {"w": _s8(channels, channels, 3, 3), "wz": np.zeros(channels, np.int8), "b": np.zeros(channels, np.int32)}
    names = ["x", "one", "zero", "w", "ws", "wz", "one", "zero", "b"]
    node = _node("QLinearConv", names, "y", pads=[1, 1, 1, 1])
    return _model([node], {**weights, **scales}, (1, channels, side, side), "uint8")


def chain(length: int) -> "ModelProto":
    """`length` additions to one number, one after the other: nothing but the cost of a node."""
    names = ["x", *(f"t{index}" for index in range(1, length)), "y"]
    nodes = [_node("Add", [names[index], "c"], names[index + 1]) for index in range(length)]
    return _model(nodes, {"c": np.ones(1, np.float32)}, (1,), "float32")


def feed_for(model: "ModelProto") -> Arrays:
    """A random input for `x`."""
    tensor = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in tensor.shape.dim]
    if tensor.elem_type == 1:
        return {"x": _floats(*shape)}
    return {"x": np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)}


def _model(nodes: "list[NodeProto]", values: Arrays, shape: tuple[int, ...], dtype: str) -> "ModelProto":
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "ceiling", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION)


def _node(op: str, inputs: list[str], *outputs: str, pads: list[int] | None = None) -> "NodeProto":
    from onnx import helper

    node = helper.make_node(op, inputs, outputs)
    if pads is not None:
        node.attribute.append(helper.make_attribute("pads", pads))
    return node


def _to_float(source: str, target: str) -> "NodeProto":
    from onnx import TensorProto, helper

    return helper.make_node("Cast", [source], [target], to=TensorProto.FLOAT)


def _floats(*shape: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(0).random(shape, dtype=np.float32) - np.float32(0.5)


def _s8(*shape: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(0).integers(-S8_LIMIT, S8_LIMIT, shape, dtype=np.int8)
