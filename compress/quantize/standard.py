"""A Q/DQ graph as exported, rewritten to what every runtime reads: standard operators, weights stored as their codes.

q = clamp(round(x / scale) + zero_point, qmin, qmax), with zero_point 0 throughout: TensorRT takes no other.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data import Array
from compress.errors import InputError
from compress.quantize.graph import HEAVY_OP_TYPES, Graph, attribute

if TYPE_CHECKING:
    import onnx

Q, DQ = "QuantizeLinear", "DequantizeLinear"
# The exporter's own operators for 8-bit floats, which say the same as the standard ones from opset 19 on.
STANDARD = {"TRT_FP8QuantizeLinear": Q, "TRT_FP8DequantizeLinear": DQ}
# Largest finite number of float8 e4m3fn (OCP 8-bit floating point specification, table 1).
LARGEST_E4M3 = 448.0
# Between a weight's codes and its product stand, at most, these.
CARRIERS = frozenset({"Transpose", "Identity", "Cast", "Mul"})


def standardise_(proto: "onnx.ModelProto") -> None:
    """Rewrite in place. Raises InputError for operators without a standard form, and for a zero point other than 0."""
    _use_standard_operators_(proto)
    _lift_constants_(proto)
    _store_codes_(proto)
    _transpose_codes_(proto)
    _drop_unused_(proto)
    check_symmetric(proto)


def check_symmetric(proto: "onnx.ModelProto") -> None:
    """Raise InputError, with the node, when a zero point is not 0; TensorRT refuses such a file."""
    graph = Graph(proto)
    for node in _pairs(proto):
        zero = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
        if zero is None or np.any(zero.astype(np.float32) != 0):
            found = "computed at run time" if zero is None else f"{zero.astype(np.float32).ravel()[0]:g}"
            raise InputError(node.name or node.output[0], f"zero point is {found}", "GPU targets take symmetric ranges")


def coverage(proto: "onnx.ModelProto") -> tuple[list[str], list[str]]:
    """Convolutions and matrix products whose inputs are both rounded, and those with an input that is not."""
    graph = Graph(proto)
    heavy = [node for node in proto.graph.node if node.op_type in HEAVY_OP_TYPES]
    rounded = [node for node in heavy if all(_is_rounded(graph, value) for value in node.input[:2])]
    names = {node.name for node in rounded}
    return [node.name for node in rounded], [node.name for node in heavy if node.name not in names]


def _is_rounded(graph: Graph, value: str) -> bool:
    node = graph.producers.get(value)
    while node is not None and node.op_type in CARRIERS:
        node = graph.producers.get(node.input[0])
    return node is not None and node.op_type == DQ


def _pairs(proto: "onnx.ModelProto") -> "Iterator[onnx.NodeProto]":
    return (node for node in proto.graph.node if node.op_type in (Q, DQ))


def _use_standard_operators_(proto: "onnx.ModelProto") -> None:
    from onnx import TensorProto, helper

    zero = "float8_zero"
    private = [node for node in proto.graph.node if node.domain]
    for node in private:
        if node.op_type not in STANDARD:
            fact = f"the exported file holds {node.domain}::{node.op_type}, which ONNX Runtime does not know"
            raise InputError(node.name or node.output[0], fact, "Use another method")
        node.op_type, node.domain = STANDARD[node.op_type], ""
        node.input[:] = [*node.input[:2], zero]
    if private:
        proto.graph.initializer.append(helper.make_tensor(zero, TensorProto.FLOAT8E4M3FN, [], [0.0]))
    standard = [item for item in proto.opset_import if item.domain in ("", "ai.onnx")]
    del proto.opset_import[:]
    proto.opset_import.extend(standard)


def _lift_constants_(proto: "onnx.ModelProto") -> None:
    """Constants that Q/DQ read become initialisers, as quantizers of files write them."""
    graph = Graph(proto)
    wanted = {value for node in _pairs(proto) for value in node.input}
    lifted = []
    for value in wanted:
        node = graph.producers.get(value)
        if node is not None and node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            tensor.name = value
            proto.graph.initializer.append(tensor)
            lifted.append(value)
    _remove_(proto, lifted)


def _store_codes_(proto: "onnx.ModelProto") -> None:
    """Weights that the graph rounds each time are stored rounded: a quarter of the bytes, and nothing left to fold."""
    graph = Graph(proto)
    stored = {}
    for node in proto.graph.node:
        weight = graph.constant(node.input[0]) if node.op_type == Q else None
        scale = graph.constant(node.input[1]) if weight is not None else None
        if weight is None or scale is None:
            continue
        zero = graph.initializers[node.input[2]]
        codes = _codes(weight, scale, int(attribute(node, "axis", 1)), zero.data_type)
        stored[node.output[0]] = codes
    for value, codes in stored.items():
        _store_(proto, value, codes)
    _remove_(proto, list(stored))


def _codes(weight: Array, scale: Array, axis: int, kind: int) -> Array:
    """weight: any shape; scale: () or (weight.shape[axis],). Codes in the type of the zero point."""
    import ml_dtypes
    from onnx import TensorProto

    shape = [-1 if i == axis % weight.ndim else 1 for i in range(weight.ndim)]
    scaled = weight / (scale.reshape(shape) if scale.size > 1 else scale.reshape(()))
    if kind == TensorProto.FLOAT8E4M3FN:
        return np.clip(scaled, -LARGEST_E4M3, LARGEST_E4M3).astype(ml_dtypes.float8_e4m3fn)
    return np.clip(np.rint(scaled), -128, 127).astype(np.int8)


def _transpose_codes_(proto: "onnx.ModelProto") -> None:
    """A matrix that is turned after it was dequantized is stored turned: one copy of a float matrix less per run."""
    graph = Graph(proto)
    renamed: dict[str, str] = {}
    for node in proto.graph.node:
        pair = graph.producers.get(node.input[0]) if node.op_type == "Transpose" else None
        if pair is None or pair.op_type != DQ or len(graph.consumers[pair.output[0]]) > 1:
            continue
        codes = graph.constant(pair.input[0])
        if codes is None or codes.ndim != 2 or len(graph.consumers[pair.input[0]]) > 1:
            continue
        graph.initializers[pair.input[0]].CopyFrom(_tensor(pair.input[0], np.ascontiguousarray(codes.T)))
        for one in pair.attribute:
            if one.name == "axis":
                one.i = 1 - one.i % 2
        renamed[node.output[0]] = pair.output[0]
    for node in proto.graph.node:
        node.input[:] = [renamed.get(value, value) for value in node.input]
    _remove_(proto, list(renamed))


def _drop_unused_(proto: "onnx.ModelProto") -> None:
    read = {value for node in proto.graph.node for value in node.input} | {item.name for item in proto.graph.output}
    kept = sorted((item for item in proto.graph.initializer if item.name in read), key=lambda item: item.name)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    # Types noted for values that now hold codes would be wrong.
    del proto.graph.value_info[:]


def _remove_(proto: "onnx.ModelProto", values: list[str]) -> None:
    """Take out the nodes that produce `values`."""
    gone = set(values)
    kept = [node for node in proto.graph.node if not gone & {*node.output}]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)


def _store_(proto: "onnx.ModelProto", name: str, values: Array) -> None:
    proto.graph.initializer.append(_tensor(name, values))


def _tensor(name: str, values: Array) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(values, name)
