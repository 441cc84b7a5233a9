"""Audit: which kernels really run. Read from the optimised graph of the runtime, not from the file or a promise."""

from collections import Counter
from pathlib import Path
from typing import Any

INTEGER_OPS = frozenset({
    "QLinearConv", "QLinearMatMul", "QGemm", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "QAttention", "QLinearAdd", "QLinearMul", "QLinearAveragePool",
    "QLinearGlobalAveragePool", "QLinearConcat", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax",
    "QLinearReduceMean", "DynamicQuantizeLSTM", "QLinearWhere",
})  # fmt: skip
# The integer kernels that replace the expensive float ones; element-wise integer operators alone accelerate nothing.
HEAVY_INTEGER_OPS = frozenset({
    "QLinearConv", "QLinearMatMul", "QGemm", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "QAttention", "DynamicQuantizeLSTM",
})  # fmt: skip
HEAVY_FLOAT_OPS = frozenset(
    {
        "Conv",
        "FusedConv",
        "ConvTranspose",
        "Gemm",
        "FusedGemm",
        "MatMul",
        "FusedMatMul",
        "LSTM",
        "GRU",
        "RNN",
        "Attention",
        "MultiHeadAttention",
        "Einsum",
    }
)
BOUNDARY_OPS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Cast",
        "Transpose",
        "ReorderInput",
        "ReorderOutput",
    }
)


def audit_graph(optimised: Path, providers: list[str], requested: str) -> dict[str, Any]:
    """Count integer, float and boundary nodes of the graph that runs. providers: as the session has them."""
    import onnx

    nodes = list(onnx.load(optimised).graph.node)
    ops = Counter(node.op_type for node in nodes)
    integer = sum(count for op, count in ops.items() if op in INTEGER_OPS)
    heavy_integer = sum(count for op, count in ops.items() if op in HEAVY_INTEGER_OPS)
    left = [f"{node.name or node.output[0]} ({node.op_type})" for node in nodes if node.op_type in HEAVY_FLOAT_OPS]
    heavy = heavy_integer + len(left)
    note = f"{heavy_integer} of {heavy} convolutions and matrix products run as integer kernels"
    if not heavy_integer:
        note = f"not accelerated: none of {heavy} convolutions and matrix products became an integer kernel"
    return {
        "integer_ops": integer,
        "float_ops": len(left),
        "boundary_ops": sum(count for op, count in ops.items() if op in BOUNDARY_OPS),
        "provider": providers[0],
        "provider_fallbacks": [] if providers[0].lower().startswith(requested) else [providers[0]],
        "accelerated": heavy_integer > 0,
        "by_op": dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        "left_in_float": left,
        "note": note,
    }
