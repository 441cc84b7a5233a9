"""Shapes of onnxruntime's own operators, by standing in a standard operator with the same output shape.

onnx infers shapes of its own operators only, and stops at the first `com.microsoft` one; optimised and quantized graphs
are full of them. The stand-ins are used for inference alone and never counted.
"""

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import NodeProto, TensorProto, helper, shape_inference

StandIn = Callable[[NodeProto, Mapping[str, Sequence[int]]], list[NodeProto]]


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with shapes wherever they follow from what is known. `model` is used up."""
    graph = model.graph
    dims = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    originals = list(graph.node)
    replaced: list[int] = []
    nodes: list[NodeProto] = []
    for node in originals:
        stand_in = _STAND_INS.get(node.op_type) if node.domain == "com.microsoft" else None
        made = stand_in(node, dims) if stand_in else [node]
        nodes.extend(made)
        replaced.append(len(made) if stand_in else 0)
    kept = [_copy(node) if count else None for node, count in zip(originals, replaced, strict=True)]
    nodes = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    inferred = shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    _restore(inferred.graph, kept, replaced)
    return inferred


def _restore(graph: onnx.GraphProto, kept: list[NodeProto | None], replaced: list[int]) -> None:
    """Put the original nodes back; the others stay as inferred, for shapes inside their own graphs."""
    inferred = iter([_copy(node) for node in graph.node])
    del graph.node[:]
    for original, count in zip(kept, replaced, strict=True):
        made = [next(inferred) for _ in range(max(count, 1))]
        graph.node.append(original if original is not None else made[0])


def _copy(node: NodeProto) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    return made


def _like(*places: int, op: str = "Identity") -> StandIn:
    """A standard operator on some of the inputs."""
    return lambda node, _: [helper.make_node(op, [node.input[place] for place in places], node.output[:1])]


def _keeping(op: str, *names: str, places: Sequence[int] = (0, 1)) -> StandIn:
    """A standard operator that needs some of the attributes too."""

    def stand_in(node: NodeProto, _: Mapping[str, Sequence[int]]) -> list[NodeProto]:
        made = helper.make_node(op, [node.input[place] for place in places if place < len(node.input)], node.output[:1])
        made.attribute.extend(attribute for attribute in node.attribute if attribute.name in names)
        return [made]

    return stand_in


def _to_float(node: NodeProto, _: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    product = helper.make_node("MatMul", node.input[:2], [f"{node.output[0]}~"])
    return [product, helper.make_node("Cast", [f"{node.output[0]}~"], node.output[:1], to=TensorProto.FLOAT)]


def _fused_matmul(node: NodeProto, dims: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    """Products of transposed operands need their rank, so only plain ones are followed."""
    turned = any(attribute.name.startswith("trans") and attribute.i for attribute in node.attribute)
    return [node] if turned else _like(0, 1, op="MatMul")(node, dims)


def _concat(node: NodeProto, _: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    # Output scale and zero point, then (tensor, scale, zero point) for each input.
    made = helper.make_node("Concat", node.input[2::3], node.output[:1])
    made.attribute.extend(node.attribute)
    return [made]


def _conv(node: NodeProto, dims: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    """QLinearConv; with channels_last its input and output are (n, *space, c), its weight as ever."""
    x, weight, out = node.input[0], node.input[3], node.output[0]
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    made = helper.make_node("Conv", [x, weight], [out])
    made.attribute.extend(attribute for attribute in node.attribute if attribute.name in names)
    if not _flag(node, "channels_last") or weight not in dims:
        return [made]
    made.input[0], made.output[0] = f"{out}~in", f"{out}~out"
    return _turned(x, out, len(dims[weight]), made)


def _pool(node: NodeProto, _: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    x, out = node.input[0], node.output[0]
    if not _flag(node, "channels_last"):
        return [helper.make_node("GlobalAveragePool", [x], [out])]
    return _turned(x, out, 4, helper.make_node("GlobalAveragePool", [f"{out}~in"], [f"{out}~out"]))


def _turned(x: str, out: str, rank: int, node: NodeProto) -> list[NodeProto]:
    """`node` between two transposes, from channels last to channels first and back."""
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    before = helper.make_node("Transpose", [x], node.input[:1], perm=first)
    return [before, node, helper.make_node("Transpose", node.output[:1], [out], perm=last)]


def _flag(node: NodeProto, name: str) -> bool:
    return any(attribute.name == name and attribute.i for attribute in node.attribute)


def _bits(node: NodeProto, _: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    """x (..., K) by a packed weight: as a product with a (K, N) matrix of zeros that nobody stores."""
    size = {attribute.name: attribute.i for attribute in node.attribute if attribute.name in ("K", "N")}
    return _by_zeros(node, [size["K"], size["N"]])


def _packed_attention(node: NodeProto, dims: Mapping[str, Sequence[int]]) -> list[NodeProto]:
    if node.input[1] not in dims:
        return [node]
    rows, columns = dims[node.input[1]]
    sizes = next((list(a.ints) for a in node.attribute if a.name == "qkv_hidden_sizes"), [columns // 3] * 3)
    return _by_zeros(node, [rows, sizes[-1]])


def _by_zeros(node: NodeProto, shape: Sequence[int]) -> list[NodeProto]:
    name = f"{node.output[0]}~shape"
    sizes = helper.make_node("Constant", [], [name], value_ints=shape)
    zeros = helper.make_node("ConstantOfShape", [name], [f"{name}~zeros"])
    return [sizes, zeros, helper.make_node("MatMul", [node.input[0], f"{name}~zeros"], node.output[:1])]


_SAME = (
    "BiasGelu",
    "FastGelu",
    "Gelu",
    "GroupQueryAttention",
    "MultiHeadAttention",
    "QLinearLeakyRelu",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QuickGelu",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
_SPACE = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_STAND_INS: dict[str, StandIn] = {
    **dict.fromkeys(_SAME, _like(0)),
    "Attention": _packed_attention,
    "DequantizeLinear": _like(0),
    "DynamicQuantizeLSTM": _keeping("LSTM", "direction", "hidden_size", places=(0, 1, 2)),
    "DynamicQuantizeMatMul": _like(0, 1, op="MatMul"),
    "FusedConv": _keeping("Conv", *_SPACE),
    "FusedGemm": _keeping("Gemm", "transA", "transB"),
    "FusedMatMul": _fused_matmul,
    "MatMulIntegerToFloat": _to_float,
    "MatMulNBits": _bits,
    "QAttention": _packed_attention,
    "QGemm": _keeping("Gemm", "transA", "transB", places=(0, 3)),
    "QLinearAdd": _like(0, 3, op="Add"),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _pool,
    "QLinearMul": _like(0, 3, op="Mul"),
    "QuantizeLinear": _like(0),
}
