"""A float file in half precision: what a GPU serves when nothing is quantized. Inputs and outputs keep their type."""

from pathlib import Path

from compress.errors import InputError
from compress.files import write_with


def write_half(source: Path, target: Path) -> None:
    """Write the float32 file `source` with float16 weights and kernels. Raises InputError when it cannot be turned."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    from compress.export.onnx import quiet

    try:
        with quiet():  # it warns of every weight that float16 rounds to zero
            proto = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    except Exception as error:  # the converter raises what its shape inference raises
        raise InputError(str(source), f"cannot be turned into float16 ({error})", "Keep float32") from error
    write_with(target, lambda temporary: onnx.save(proto, str(temporary)))
