"""Quantize an ONNX file for ONNX Runtime's CPU provider: static Q/DQ or dynamic, by a scheme."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data import Array
from compress.device.facts import overflows_here
from compress.device.runtime import open_session
from compress.errors import InputError
from compress.export.onnx import quiet
from compress.files import write_with
from compress.measure.stats import sqnr_db
from compress.quantize.grid import narrow_weights_
from compress.quantize.schemes import Scheme

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

# In Linear-heavy nets the pieces between the products (LayerNorm, Softmax, residual Add) lose more than they gain.
LINEAR_OP_TYPES = ("MatMul", "Gemm", "Conv")
CONV_OP_TYPES = (
    "Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Mul", "Relu", "Clip", "LeakyRelu", "Sigmoid", "MaxPool",
    "AveragePool", "GlobalAveragePool", "Concat", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Resize",
    "Split", "Pad", "Slice",
)  # fmt: skip
# More than this lost by running the integer kernels instead of the same file in float means that sums overflow, on a
# CPU where they can. Kernels that round exactly stayed within 0.52 dB on 31 files of a depthwise net and an encoder;
# overflow cost 1.4 dB and five points of top1 on the first.
SATURATION_LOSS_DB = 0.7


def op_types_for(*, linear_heavy: bool) -> tuple[str, ...]:
    return LINEAR_OP_TYPES if linear_heavy else CONV_OP_TYPES


def quantize_static(
    source: Path,
    target: Path,
    scheme: Scheme,
    ranges: "TensorsData",
    op_types: Sequence[str],
    exclude: Sequence[str],
    *,
    weight_scales: Mapping[str, Array] | None = None,
) -> None:
    """Write `source` with Q/DQ pairs to `target`. ranges: from `calibrate`; exclude: node names left in float.

    weight_scales: by initialiser's name, for a scheme of fewer than 8 bits whose scales were learned.
    q = clamp(round(x / scale) + zero_point, qmin, qmax). Raises InputError when nothing could be quantized.
    """
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    types = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
    model = onnx.shape_inference.infer_shapes(onnx.load(source))
    floats = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    quantizer = QDQQuantizer(
        model,
        per_channel=scheme.per_channel,
        reduce_range=scheme.reduced,
        weight_qType=types[scheme.weight],
        activation_qType=types[scheme.activation],
        tensors_range=ranges,
        nodes_to_quantize=[],
        nodes_to_exclude=list(exclude),
        op_types_to_quantize=list(op_types),
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT, "WeightSymmetric": scheme.weight == "s8"},
    )
    with quiet():
        quantizer.quantize_model()
    quantizer.model.topological_sort()
    proto = quantizer.model.model
    _check_scales(proto, source)
    if scheme.weight_bits < 8:
        narrow_weights_(proto, floats, scheme.weight_bits, weight_scales)
    _order_deterministically_(proto)
    write_with(target, lambda temporary: onnx.save(proto, str(temporary)))


def quantize_dynamic(source: Path, target: Path, scheme: Scheme, exclude: Sequence[str]) -> None:
    """Write `source` with 8-bit weights and activations quantized on the fly. For matrix products only."""
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as ort_quantize_dynamic

    proto = onnx.load(source)
    # The quantizer transposes weights of Gemm and then trips over the shapes noted for them before.
    del proto.graph.value_info[:]
    with tempfile.TemporaryDirectory(prefix="compress-") as folder, quiet():
        raw = Path(folder) / "dynamic.onnx"
        ort_quantize_dynamic(
            proto, raw, op_types_to_quantize=["MatMul", "Gemm", "Gather"], per_channel=scheme.per_channel,
            reduce_range=scheme.reduced, weight_type=QuantType.QInt8 if scheme.weight == "s8" else QuantType.QUInt8,
            nodes_to_exclude=list(exclude), extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
        quantized = onnx.load(raw)
    _order_deterministically_(quantized)
    write_with(target, lambda temporary: onnx.save(quantized, str(temporary)))


def check_saturation(quantized: Path, source: Path, feeds: dict[str, Array], threads: int) -> dict[str, Any]:
    """Whether integer kernels lose what the same file, run in float, keeps. feeds: one batch (n, ...) by input name.

    Returns sqnr_db of the integer against the float execution, both against `source`, and `saturates`.
    """
    reference = _run(source, feeds, threads, optimise=True)
    integer = _run(quantized, feeds, threads, optimise=True)
    emulated = _run(quantized, feeds, threads, optimise=False)
    kept = sqnr_db(reference, emulated)
    left = sqnr_db(reference, integer)
    lost = 0.0 if kept is None or left is None else kept - left
    return {
        "sqnr_db": sqnr_db(emulated, integer),
        "sqnr_float_db": kept,
        "sqnr_integer_db": left,
        "lost_db": lost,
        "saturates": overflows_here() and lost > SATURATION_LOSS_DB,
    }


def _run(path: Path, feeds: dict[str, Array], threads: int, *, optimise: bool) -> Any:
    outputs = open_session(path, threads=threads, optimise=optimise).run(None, feeds)
    return np.concatenate([np.asarray(output, dtype=np.float64).ravel() for output in outputs])


def _check_scales(proto: Any, source: Path) -> None:
    """Every inserted quantizer has a finite, positive scale, and there is at least one."""
    from onnx import numpy_helper

    values = {item.name: item for item in proto.graph.initializer}
    scales = {node.input[1] for node in proto.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    if not scales:
        raise InputError(
            str(source), "holds no operator that can be quantized", "Remove the ptq stage, or its `exclude`"
        )
    for name in sorted(scales):
        scale = numpy_helper.to_array(values[name]) if name in values else np.ones(1)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            raise InputError(
                str(source),
                f"tensor '{name.removesuffix('_scale')}' has scale {scale.ravel()[0]}",
                "Check the calibration data",
            )


def _order_deterministically_(proto: Any) -> None:
    """The quantizer walks sets in places; initialisers sorted by name make equal inputs give equal bytes."""
    ordered = sorted(proto.graph.initializer, key=lambda item: item.name)
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(ordered)
