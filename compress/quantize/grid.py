"""Weights on a narrow grid: a quantized file whose s8 weights use only the few values that 4 or 3 bits can hold.

q = clamp(round(w / scale), -limit, limit), limit = 2^(bits - 1) - 1. Weights of 4 bits and fewer are stored packed, two
to a byte, and cast to s8 in front of their DequantizeLinear: the runtime evaluates that cast when it loads the file, so
the same integer kernels run as for 8 bits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compress.data import Array

# Operators with a bias that the quantizer stores as s32 with scale x_scale * w_scale.
BIASED = ("Conv", "ConvTranspose", "Gemm")
PACKED_BITS = 4


@dataclass(frozen=True, kw_only=True)
class Weight:
    """A weight of a quantized file: the float initialiser's name, and the axis of its channels (None: one scale)."""

    name: str
    quantized: str
    scale: str
    axis: int | None


def limit_of(bits: int) -> int:
    """Largest value of the symmetric grid: 7 for 4 bits, 3 for 3."""
    return int(2 ** (bits - 1) - 1)


def weights_of(proto: Any) -> list[Weight]:
    """The weights of a Q/DQ file, in the order of its nodes; biases (s32) are none."""
    return list(_weights(proto))


def scale_of(weight: Array, axis: int | None, limit: int) -> Array:
    """Scale of the widest value: () or (channels,) float32. weight: any shape; a channel of zeros gets scale 1."""
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    widest = np.abs(weight).max(axis=others)
    return np.where(widest > 0, widest / limit, 1.0).astype(np.float32)


def on_grid(weight: Array, scale: Array, axis: int | None, limit: int) -> Array:
    """weight: any shape; scale: () or (channels,) along axis. Returns s8 of the weight's shape."""
    values = np.round(weight / _along(scale, weight.ndim, axis))
    return np.clip(values, -limit, limit).astype(np.int8)


def narrow_weights_(proto: Any, floats: Mapping[str, Array], bits: int, scales: Mapping[str, Array] | None) -> None:
    """Put the weights of a Q/DQ file onto the grid of `bits`.

    floats: the float file's initialisers; scales: by initialiser's name, () or (channels,), where they were learned;
    the widest value of each weight or channel decides otherwise. Biases follow, for their scale is x_scale * w_scale.
    """
    limit = limit_of(bits)
    values = {item.name: item for item in proto.graph.initializer}
    for weight in weights_of(proto):
        known = floats[weight.name]
        learned = (scales or {}).get(weight.name)
        scale = scale_of(known, weight.axis, limit) if learned is None else learned.astype(np.float32)
        old = _array(values[weight.scale])
        _set_(values[weight.scale], scale.reshape(old.shape))
        _set_(values[weight.quantized], on_grid(known, scale, weight.axis, limit))
        for bias in _biases(proto, weight):
            _rescale_bias_(values, bias, floats, scale.reshape(old.shape) / old)
    if bits <= PACKED_BITS:
        _pack_(proto)


def _weights(proto: Any) -> Iterator[Weight]:
    import onnx

    stored = (onnx.TensorProto.INT4, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    values = {item.name: item for item in proto.graph.initializer}
    casts = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == "Cast"}
    for node in proto.graph.node:
        item = values.get(casts.get(node.input[0], node.input[0])) if node.op_type == "DequantizeLinear" else None
        if item is None or item.data_type not in stored:
            continue
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        yield Weight(
            name=node.output[0].removesuffix("_DequantizeLinear_Output"),
            quantized=item.name,
            scale=node.input[1],
            axis=axis if len(values[node.input[1]].dims) else None,
        )


def _biases(proto: Any, weight: Weight) -> Iterator[str]:
    """Names of the biases that are added to products with the weight."""
    wanted = f"{weight.name}_DequantizeLinear_Output"
    for node in proto.graph.node:
        if node.op_type in BIASED and len(node.input) > 2 and node.input[1] == wanted:
            yield node.input[2]


def _rescale_bias_(values: dict[str, Any], bias: str, floats: Mapping[str, Array], ratio: Array) -> None:
    """ratio: new by old scale of the weight, () or (channels,). A bias left in float has no scale and stays."""
    quantized, scale = values.get(f"{bias}_quantized"), values.get(f"{bias}_quantized_scale")
    if quantized is None or scale is None:
        return
    new = (_array(scale) * ratio).astype(np.float32).reshape(_array(scale).shape)
    _set_(scale, new)
    rounded = np.round(floats[bias].astype(np.float64) / new.astype(np.float64))
    _set_(quantized, np.clip(rounded, -(2**31), 2**31 - 1).astype(np.int32))


def _pack_(proto: Any) -> None:
    """Store the weights as s4 and cast them to s8 in front of their DequantizeLinear."""
    import onnx
    from onnx import helper, numpy_helper

    values = {item.name: item for item in proto.graph.initializer}
    casts = []
    for weight in weights_of(proto):
        item = values[weight.quantized]
        stored = f"{weight.quantized}_s4"
        packed = numpy_helper.to_array(item).astype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4))
        casts.append(
            helper.make_node("Cast", [stored], [item.name], name=f"{item.name}_Cast", to=onnx.TensorProto.INT8)
        )
        item.CopyFrom(numpy_helper.from_array(packed, stored))
    nodes = [*casts, *proto.graph.node]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    _raise_opset_(proto, 21)


def _raise_opset_(proto: Any, opset: int) -> None:
    """s4 tensors came with opset 21; QuantizeLinear and DequantizeLinear of one axis mean the same there."""
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx"):
            item.version = max(item.version, opset)
    proto.ir_version = max(proto.ir_version, 10)


def _set_(item: Any, value: Array) -> None:
    from onnx import numpy_helper

    item.CopyFrom(numpy_helper.from_array(np.asarray(value, order="C"), item.name))


def _array(item: Any) -> Array:
    from onnx import numpy_helper

    found: Array = numpy_helper.to_array(item)
    return found


def _along(scale: Array, rank: int, axis: int | None) -> Array:
    return scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(rank)])
