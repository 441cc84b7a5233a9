"""Kind and multiply-accumulates of each ONNX operator, from shapes and attributes. Pure Python: literal tables.

Sources: the ONNX operator documentation and onnxruntime's contrib operator documentation (`com.microsoft`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from compress.analyze import macs
from compress.analyze.table import Kind

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Node:
    """What a formula sees. An absent optional input has the shape ()."""

    domain: str
    op: str
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]
    attributes: Attributes


OnnxFormula = Callable[[Node], int]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _product(node: Node) -> int:
    return macs.matmul(
        node.outputs[0], node.inputs[0][-2 if node.attributes.get("transA") and len(node.inputs[0]) > 1 else -1]
    )


def _conv(weight: int) -> OnnxFormula:
    return lambda node: macs.convolution(node.outputs[0], node.inputs[weight])


def _conv_transpose(node: Node) -> int:
    return macs.transposed_convolution(node.inputs[0], node.inputs[1])


def _einsum(node: Node) -> int:
    return macs.einsum(node.attributes["equation"].decode(), node.inputs)


def _recurrent(node: Node) -> int:
    # W and R hold one matrix per direction.
    return prod(node.inputs[0][:2]) * (prod(node.inputs[1]) + prod(node.inputs[2]))


def _n_bits(node: Node) -> int:
    return prod(node.inputs[0][:-1]) * node.attributes["K"] * node.attributes["N"]


def _attention(past_key: int) -> OnnxFormula:
    """Separate query, key and value: (b, s, heads * size) or (b, heads, s, size); the cache is (b, heads, s, size)."""

    def formula(node: Node) -> int:
        query, key, value = node.inputs[:3]
        past = node.inputs[past_key][-2] if len(node.inputs) > past_key and node.inputs[past_key] else 0
        heads = query[1] if len(query) == 4 else node.attributes.get("q_num_heads") or node.attributes["num_heads"]
        groups = key[1] if len(key) == 4 else node.attributes.get("kv_num_heads") or heads
        query_size = query[-1] if len(query) == 4 else query[-1] // heads
        value_size = value[-1] if len(value) == 4 else value[-1] // groups
        rows = (query[0], heads, query[-2], value_size)
        return macs.attention(rows, query_size, key[-2] + past)

    return formula


def _packed_attention(past: int) -> OnnxFormula:
    """Attention of com.microsoft: the projection of x (b, s, d) by a packed (d, q + k + v) weight is part of the op."""

    def formula(node: Node) -> int:
        (batch, steps, _), weight = node.inputs[0], node.inputs[1]
        query, _, value = node.attributes.get("qkv_hidden_sizes") or [weight[1] // 3] * 3
        keys = steps + (node.inputs[past][-2] if len(node.inputs) > past and node.inputs[past] else 0)
        return batch * steps * (prod(weight) + keys * (query + value))

    return formula


CONTRACTIONS: dict[str, OnnxFormula] = {
    "Conv": _conv(1),
    "ConvInteger": _conv(1),
    "FusedConv": _conv(1),
    "QLinearConv": _conv(3),
    "ConvTranspose": _conv_transpose,
    "Gemm": _product,
    "FusedGemm": _product,
    "QGemm": _product,
    "MatMul": _product,
    "FusedMatMul": _product,
    "MatMulInteger": _product,
    "MatMulIntegerToFloat": _product,
    "DynamicQuantizeMatMul": _product,
    "QLinearMatMul": _product,
    "MatMulNBits": _n_bits,
    "Einsum": _einsum,
}
ATTENTIONS: dict[str, OnnxFormula] = {
    "Attention": _attention(4),
    "MultiHeadAttention": _attention(6),
    "GroupQueryAttention": _attention(3),
    "com.microsoft::Attention": _packed_attention(4),
    "QAttention": _packed_attention(8),
}
RECURRENTS: dict[str, OnnxFormula] = dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), _recurrent)

ELEMENTWISE = _names(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BatchNormalization Bernoulli BiasGelu BitShift BitwiseAnd
    BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip ConstantOfShape Cos Cosh DequantizeLinear Div Dropout
    DynamicQuantizeLinear Elu Equal Erf Exp EyeLike FastGelu Floor Gelu Greater GreaterOrEqual HardSigmoid
    HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow
    QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid QuantizeLinear QuickGelu RandomNormal RandomNormalLike
    RandomUniform RandomUniformLike Range Reciprocal Relu Resize RotaryEmbedding Round Selu Shrink Sigmoid Sign
    Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Trilu Upsample Where Xor OneHot
    """
)
REDUCTION = _names(
    """
    ArgMax ArgMin AveragePool CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization Hardmax
    InstanceNormalization LRN LayerNormalization LogSoftmax LpNormalization LpPool MaxPool
    MeanVarianceNormalization NonMaxSuppression NonZero QLinearAveragePool QLinearGlobalAveragePool
    QLinearReduceMean QLinearSoftmax RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare SimplifiedLayerNormalization
    SkipLayerNormalization SkipSimplifiedLayerNormalization Softmax TopK Unique
    """
)
MOVE = _names(
    """
    Cast CastLike Compress Concat ConcatFromSequence DepthToSpace Expand Pad QLinearConcat ReorderInput
    ReorderOutput ReverseSequence ScatterElements ScatterND Slice SpaceToDepth Split Tile TensorScatter
    Transpose Col2Im
    """
)
GATHER = _names(
    """
    Gather GatherElements GatherND GridSample EmbedLayerNormalization RoiAlign
    """
)
VIEW = _names(
    """
    Constant Flatten Identity Reshape Shape Size Squeeze Unsqueeze
    """
)
SOFTMAX = frozenset(("Softmax", "LogSoftmax", "QLinearSoftmax"))
_TABLES: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("elementwise", ELEMENTWISE),
    ("reduction", REDUCTION),
    ("move", MOVE),
    ("gather", GATHER),
    ("view", VIEW),
)


def classify(node: Node) -> tuple[Kind, int] | None:
    """Kind and multiply-accumulates of a node, or None where no table knows it."""
    kinds: tuple[tuple[Kind, dict[str, OnnxFormula]], ...] = (
        ("contraction", CONTRACTIONS),
        ("attention", ATTENTIONS),
        ("recurrent", RECURRENTS),
    )
    for kind, formulas in kinds:
        formula = formulas.get(f"{node.domain}::{node.op}") or formulas.get(node.op)
        if formula is not None:
            return kind, int(formula(node))
    return next(((kind, 0) for kind, names in _TABLES if node.op in names), None)
