"""Methods that rewrite the file without training: it is made with ranges of the inputs at hand, and timed whole.

Of integer kernels the neighbours decide: which activation disappears into a product, where conversions are left, in
which layout a convolution runs. So the real graph is quantized, not its nodes one by one. Ranges of one batch spoil the
accuracy, not the time, for kernels take as long whatever the scale is.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compress.data import Array, Batch, Split
from compress.errors import InputError
from compress.export.onnx import quiet
from compress.measure.stats import Interval
from compress.probe.estimate import repeatable
from compress.probe.methods import Method
from compress.probe.sites import Net
from compress.probe.task import Found, Task
from compress.quantize.ort import op_types_for, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import SCHEMES

if TYPE_CHECKING:
    pass

# The first static and the first dynamic one are the safest of their kind.
SCHEME_OF = {kind: next(scheme for scheme in SCHEMES if scheme.kind == kind) for kind in ("static", "dynamic")}
BLOCK = 128
# ONNX Runtime's `accuracy_level` 4: activations are quantized on the fly and the product computed in int8.
COMPUTE_IN_INT8 = 4
# Opening two files and warming up.
START_SECONDS = 1.0
LEAST_SECONDS = 0.5


def predict(task: Task, method: Method) -> Found:
    """Make the file that the method would make, but for its accuracy, and time it beside the float file."""
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        target = Path(folder) / "probe.onnx"
        try:
            rewrite(task.path, target, method, task.feeds)
        except InputError as error:
            return Found(note=str(error))
        if _kernels(task.path) == _kernels(target):
            return Found(note="no node of the file has a kernel that this method would replace")
        ratio = task.in_turns(target, max(LEAST_SECONDS, task.left() - START_SECONDS))["ratio"]
    note = "the whole file, with ranges of the inputs at hand: its time, not its accuracy"
    return Found(speedup=repeatable(Interval(**ratio)), covered_share=1.0, note=note)


def rewrite(source: Path, target: Path, method: Method, feeds: dict[str, Array]) -> None:
    """Write `source` after the method to `target`. feeds: one batch (n, ...) by input name.

    Raises InputError when nothing could be quantized, or a range is not finite.
    """
    if method.kind == "weights":
        _with_few_bits(source, target, int(method.amount))
    elif method.kind == "dynamic":
        quantize_dynamic(source, target, SCHEME_OF["dynamic"], [])
    else:
        op_types = op_types_for(linear_heavy=Net(source, feeds).linear_heavy)
        ranges = calibrate(source, _OneBatch("probe", feeds, np.arange(1)), op_types)
        quantize_static(source, target, SCHEME_OF["static"], ranges, op_types, mask_nodes(source, ranges))


class _OneBatch(Split):
    """All inputs in one batch, because a file may have been exported for just this many samples."""

    def batches(self, size: int, samples: int | None = None) -> Iterator[Batch]:
        del size, samples
        yield self.source, np.zeros(len(next(iter(self.source.values()))), np.int64)


def _with_few_bits(source: Path, target: Path, bits: int) -> None:
    """Matrix products with constant weights become MatMulNBits: blocks of integers with one scale each."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load(source))
    model.replace_gemm_with_matmul()
    quantizer = MatMulNBitsQuantizer(
        model.model, bits=bits, block_size=BLOCK, is_symmetric=True, accuracy_level=COMPUTE_IN_INT8
    )
    with quiet():
        quantizer.process()
    onnx.save(quantizer.model.model, str(target))


def _kernels(path: Path) -> Counter[str]:
    import onnx

    model: onnx.ModelProto = onnx.load(path, load_external_data=False)
    return Counter(node.op_type for node in model.graph.node)
