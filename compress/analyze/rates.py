"""How fast a device works in the type an op uses: roofs for hard bounds, usual rates for expectations. Pure Python."""

from collections.abc import Sequence

from compress.analyze.table import HEAVY, Op
from compress.device.ceilings import Ceilings, Figure

# Names of torch and of ONNX, to the names that ceilings use. No device is faster in fp64 than in fp32.
TYPES = {
    "float32": "fp32", "float": "fp32", "float64": "fp32", "double": "fp32",
    "bfloat16": "bf16", "float16": "fp16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8e4m3fn": "fp8", "float8e5m2": "fp8",
    "int8": "int8", "uint8": "int8", "qint8": "int8", "quint8": "int8",
    "int4": "int4", "uint4": "int4",
}  # fmt: skip
FLOATS = ("fp32", "bf16", "fp16", "fp8")


def working_types(ops: Sequence[Op]) -> tuple[str, ...]:
    """The type each op multiplies in. A float product between dequantized 8-bit operands runs in 8 bits when fused."""
    dequantized: set[int] = set()
    found = []
    for op in ops:
        if op.op.endswith("DequantizeLinear"):
            dequantized.update(t.storage for t in op.outputs)
        found.append(_working_type(op, dequantized))
    return tuple(found)


def roof(ceilings: Ceilings, dtype: str) -> float | None:
    """FLOP/s nothing exceeds in this type: its own rate, or fp32's, for every type can be computed in fp32.

    fp32 takes the TF32 rate where there is one, because runtimes use it without being asked. None: no rate is known.
    """
    names = (dtype, "fp32", "tf32") if dtype == "fp32" else (dtype, "fp32")
    rates = [rate for rate in map(ceilings.peak, names) if rate]
    fallback = [rate for rate in map(ceilings.peak, ceilings.flop_per_s) if rate]
    return max(rates or fallback, default=None)


def usual(ceilings: Ceilings, dtype: str, *, conv: bool) -> float | None:
    """FLOP/s good kernels reach in this type: of convolutions or of products, times the achievable share."""
    rate = ceilings.flop_per_s.get(dtype)
    if rate is None or not rate.supported or rate.best is None or (dtype == "fp32" and ceilings.peak("tf32")):
        limit = roof(ceilings, dtype)
        return limit * ceilings.achievable.gemm if limit else None
    figure: Figure = (rate.conv if conv else rate.gemm) or rate.best
    return figure.value * ceilings.achievable.gemm


def is_conv(op: Op) -> bool:
    """Whether the op is a convolution, by its name in either front end."""
    return op.kind == "contraction" and "conv" in op.op.lower()


def _working_type(op: Op, dequantized: set[int]) -> str:
    names = [TYPES[t.dtype] for t in op.inputs if t.dtype in TYPES]
    if op.kind not in HEAVY or not names:
        return names[0] if names else "fp32"
    given = [TYPES[t.dtype] for t in op.inputs if t.role != "weight" and t.dtype in TYPES]
    first = given[0] if given else names[0]
    fused = op.inputs[0].storage in dequantized and "int8" in names
    return "int8" if fused else first
