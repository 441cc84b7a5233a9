"""Work per op: a literal table of formulas by op name, from shapes alone. Pure Python.

A formula takes a `Call` and returns multiply-accumulates; ops without a formula have none. A custom op gets its own
through `trace(..., formulas={"mylib::myop": fn})`, which wins over this table.
"""

from collections.abc import Callable, Mapping
from math import prod

from compress.analyze import kinds, macs
from compress.analyze.table import Call, Kind

Formula = Callable[[Call], int]


def _product(operand: int) -> Formula:
    """Matrix product whose left operand is argument number `operand`."""
    return lambda call: macs.matmul(call.outputs[0].shape, call.args[operand].shape[-1])


def _dot(call: Call) -> int:
    return prod(call.args[0].shape)


def _addbmm(call: Call) -> int:
    return macs.matmul(call.args[1].shape, call.args[2].shape[-1])


def _bilinear(call: Call) -> int:
    return prod(call.outputs[0].shape[:-1]) * prod(call.args[2].shape)


def _tensordot(call: Call) -> int:
    return macs.matmul(call.outputs[0].shape, prod(call.args[0].shape[axis] for axis in call.argument(2, "dims_self")))


def _conv(call: Call) -> int:
    return macs.convolution(call.outputs[0].shape, call.args[1].shape)


def _packed_conv(call: Call) -> int:
    return macs.convolution(call.outputs[0].shape, call.inputs[1].shape)


def _conv_transpose(call: Call) -> int:
    return macs.transposed_convolution(call.args[0].shape, call.args[1].shape)


def _convolution(call: Call) -> int:
    return _conv_transpose(call) if call.argument(6, "transposed", False) else _conv(call)


def _attention(call: Call) -> int:
    query, key = call.args[0], call.args[1]
    return macs.attention(call.outputs[0].shape, query.shape[-1], key.shape[-2])


def _rnn(call: Call) -> int:
    weights = next(a for a in reversed(call.args[:4]) if isinstance(a, list | tuple))
    return macs.recurrent(prod(call.args[0].shape[:-1]), [w.shape for w in weights])


def _cell(call: Call) -> int:
    return macs.recurrent(call.args[0].shape[0], [call.args[2].shape, call.args[3].shape])


def _mkldnn_rnn(call: Call) -> int:
    return macs.recurrent(prod(call.args[0].shape[:-1]), [call.args[1].shape, call.args[2].shape])


def _packed_rnn(gates: int) -> Formula:
    def formula(call: Call) -> int:
        x, hidden = call.args[0], call.inputs[1]
        layers, directions = call.args[4], 2 if call.args[7] else 1
        steps = prod(x.shape[:-1])
        sizes = {"features": x.shape[-1], "hidden": hidden.shape[-1], "layers": layers, "directions": directions}
        return macs.recurrent_from_sizes(steps=steps, gates=gates, **sizes)

    return formula


def _einsum(call: Call) -> int:
    return macs.einsum(call.args[0], [operand.shape for operand in call.args[1]])


CONTRACTIONS: dict[str, Formula] = {
    "aten::linear": _product(0),
    "aten::matmul": _product(0),
    "aten::mm": _product(0),
    "aten::bmm": _product(0),
    "aten::mv": _product(0),
    "aten::inner": _product(0),
    "aten::addmm": _product(1),
    "aten::baddbmm": _product(1),
    "aten::addmv": _product(1),
    "aten::_addmm_activation": _product(1),
    "aten::addbmm": _addbmm,
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::linalg_vecdot": _dot,
    "aten::linalg_matmul": _product(0),
    "aten::_int_mm": _product(0),
    "aten::_scaled_mm": _product(0),
    "aten::_weight_int8pack_mm": _product(0),
    "aten::_weight_int4pack_mm": _product(0),
    "aten::_weight_int4pack_mm_for_cpu": _product(0),
    "aten::bilinear": _bilinear,
    "aten::tensordot": _tensordot,
    "aten::einsum": _einsum,
    "aten::conv1d": _conv,
    "aten::conv2d": _conv,
    "aten::conv3d": _conv,
    "aten::conv_transpose1d": _conv_transpose,
    "aten::conv_transpose2d": _conv_transpose,
    "aten::conv_transpose3d": _conv_transpose,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "quantized::linear": _product(0),
    "quantized::linear_relu": _product(0),
    "quantized::linear_dynamic": _product(0),
    "quantized::linear_relu_dynamic": _product(0),
    "quantized::linear_dynamic_fp16": _product(0),
    "quantized::conv1d": _packed_conv,
    "quantized::conv2d": _packed_conv,
    "quantized::conv2d_relu": _packed_conv,
    "quantized::conv3d": _packed_conv,
    "quantized::conv1d_relu": _packed_conv,
    "quantized::conv3d_relu": _packed_conv,
}
ATTENTIONS: dict[str, Formula] = {
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
    "aten::_scaled_dot_product_cudnn_attention": _attention,
    "aten::_scaled_dot_product_attention_math": _attention,
    "higher_order::flex_attention": _attention,
}
RECURRENTS: dict[str, Formula] = {
    "aten::lstm": _rnn,
    "aten::gru": _rnn,
    "aten::rnn_tanh": _rnn,
    "aten::rnn_relu": _rnn,
    "aten::lstm_cell": _cell,
    "aten::gru_cell": _cell,
    "aten::rnn_tanh_cell": _cell,
    "aten::rnn_relu_cell": _cell,
    "aten::mkldnn_rnn_layer": _mkldnn_rnn,
    "aten::quantized_lstm": _packed_rnn(4),
    "aten::quantized_gru": _packed_rnn(3),
}
FORMULAS: dict[str, Formula] = {**CONTRACTIONS, **ATTENTIONS, **RECURRENTS}


def classify(call: Call, formulas: Mapping[str, Formula]) -> tuple[Kind, int] | None:
    """Kind and multiply-accumulates of a call, or None where neither a formula nor a table knows the op."""
    if call.op in formulas:
        return "contraction", int(formulas[call.op](call))
    if call.op == "aten::einsum" and len(call.args[1]) < 2:
        return "reduction", 0
    if call.op in CONTRACTIONS:
        return "contraction", CONTRACTIONS[call.op](call)
    if call.op in ATTENTIONS:
        return "attention", ATTENTIONS[call.op](call)
    if call.op in RECURRENTS:
        return "recurrent", RECURRENTS[call.op](call)
    if call.op == "aten::batch_norm" and call.argument(5, "training", False):
        return "reduction", 0
    kind = kinds.kind_by_name(call.op)
    if kind is None:
        return ("elementwise", 0) if call.pointwise else None
    return kind, 0


def elementwise_flops(kind: Kind, call: Call) -> int:
    """One per output element; one per input element for reductions; five an element for normalisations and softmax."""
    if kind == "attention":
        return 5 * score_elements(call)
    if kind == "elementwise":
        return sum(t.numel for t in call.outputs[:1])
    if kind != "reduction":
        return 0
    steps = 5 if kinds.base_name(call.op) in kinds.NORMALISING else 1
    return steps * sum(t.numel for t in call.inputs[:1])


def score_elements(call: Call) -> int:
    """Elements of the score matrix of an attention: (..., heads, queries, keys)."""
    return prod(call.outputs[0].shape[:-1]) * call.args[1].shape[-2]
