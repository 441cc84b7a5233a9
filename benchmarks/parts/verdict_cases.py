"""What the benchmark of the verdict compares: nets, batch sizes, methods, and how each method is really carried out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from parts import verdict_nets as nets
from torch import nn

from compress import zoo
from compress.data import Split
from compress.export.onnx import export_onnx, quiet
from compress.quantize.ort import op_types_for, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import LINEAR_HEAVY, SCHEMES
from compress.stages.ptq_files import linear_share

CALIBRATION_SAMPLES = 64
STATIC, DYNAMIC = (next(one for one in SCHEMES if one.kind == kind) for kind in ("static", "dynamic"))


@dataclass(frozen=True, kw_only=True)
class Net:
    """shape: of one sample; smaller: the same net built smaller, by method; data: its calibration inputs (n, ...)."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    smaller: Mapping[str, Callable[[], nn.Module]] = field(default_factory=dict)
    data: Callable[[], dict[str, tuple[np.ndarray, np.ndarray]]] | None = None

    def inputs(self, samples: int) -> np.ndarray:
        """Samples (n, ...) of the calibration split, or normal ones."""
        if self.data is None:
            return np.random.default_rng(0).standard_normal((samples, *self.shape)).astype(np.float32)
        images = self.data()["calibration"][0]
        return images[np.arange(samples) % len(images)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A net at one batch size, with the methods to judge."""

    net: str
    batch: int
    methods: tuple[str, ...]


NETS = {
    "fashion_resnet": Net(
        build=zoo.fashion_resnet,
        shape=(1, 28, 28),
        smaller={"prune-50": nets.narrow_resnet},
        data=zoo.fashion_mnist,
    ),
    "fashion_mobile": Net(
        build=zoo.fashion_mobile,
        shape=(1, 28, 28),
        smaller={"prune-50": nets.narrow_mobile},
        data=zoo.fashion_mnist,
    ),
    "digits_cnn": Net(build=zoo.digits_cnn, shape=(1, 8, 8), smaller={"prune-50": nets.narrow_cnn}, data=zoo.digits),
    "digits_encoder": Net(
        build=zoo.digits_encoder,
        shape=(1, 8, 8),
        smaller={"prune-50": nets.narrow_encoder, "half-depth": nets.shallow_encoder},
        data=zoo.digits,
    ),
    "wide_mlp": Net(build=partial(nets.WideMlp, width=1024), shape=(1, 1024)),
    "tiny_layers": Net(
        build=partial(nets.TinyLayers, width=32),
        shape=(64,),
        smaller={"prune-50": partial(nets.TinyLayers, width=16)},
    ),
    "shuffle_net": Net(
        build=partial(nets.ShuffleNet, width=64),
        shape=(1, 56, 56),
        smaller={"prune-50": partial(nets.ShuffleNet, width=32)},
    ),
    "lstm": Net(
        build=partial(nets.Recurrent, width=128),
        shape=(16, 64),
        smaller={"prune-50": partial(nets.Recurrent, width=64)},
    ),
}
CASES = (
    Case(net="fashion_resnet", batch=1, methods=("int8", "prune-50", "batch-8")),
    Case(net="fashion_resnet", batch=8, methods=("int8",)),
    Case(net="fashion_mobile", batch=1, methods=("int8", "prune-50", "batch-8")),
    Case(net="fashion_mobile", batch=8, methods=("int8",)),
    Case(net="digits_cnn", batch=1, methods=("int8", "prune-50")),
    Case(net="digits_cnn", batch=8, methods=("int8",)),
    Case(net="digits_encoder", batch=1, methods=("int8", "dynamic-int8", "weights-int8", "prune-50", "half-depth")),
    Case(net="digits_encoder", batch=8, methods=("int8", "dynamic-int8")),
    Case(net="wide_mlp", batch=1, methods=("int8", "dynamic-int8", "weights-int8", "weights-int4", "batch-32")),
    Case(net="wide_mlp", batch=32, methods=("int8", "dynamic-int8", "weights-int8", "weights-int4")),
    Case(net="tiny_layers", batch=1, methods=("int8", "dynamic-int8", "prune-50", "batch-8")),
    Case(net="shuffle_net", batch=1, methods=("int8", "prune-50", "batch-8")),
    Case(net="lstm", batch=1, methods=("int8", "dynamic-int8", "prune-50", "batch-8")),
)
QUICK = (
    Case(net="digits_cnn", batch=1, methods=("int8", "prune-50")),
    Case(net="lstm", batch=1, methods=("batch-8",)),
)
WEIGHT_BITS = {"weights-int8": 8, "weights-int4": 4}


def export(module: nn.Module, net: Net, path: Path) -> Path:
    """The float file, its batch size open."""
    export_onnx(module, {"input": net.inputs(2)}, path, ["output"])
    return path


def make(source: Path, target: Path, net: Net, method: str) -> Path:
    """The file that a method really leaves, with ranges of real data; `source` itself where only the batch changes."""
    if method in net.smaller:
        return export(nets.seeded(net.smaller[method]()), net, target)
    if method == "int8":
        _quantize(source, target, net)
    elif method == "dynamic-int8":
        quantize_dynamic(source, target, DYNAMIC, [])
    elif method in WEIGHT_BITS:
        _with_few_bits(source, target, WEIGHT_BITS[method])
    return target if target.exists() else source


def _quantize(source: Path, target: Path, net: Net) -> None:
    inputs = {"input": net.inputs(CALIBRATION_SAMPLES)}
    split = Split("calibration", (inputs, np.zeros(CALIBRATION_SAMPLES)), np.arange(CALIBRATION_SAMPLES))
    op_types = op_types_for(linear_heavy=linear_share(source) >= LINEAR_HEAVY)
    ranges = calibrate(source, split, op_types)
    quantize_static(source, target, STATIC, ranges, op_types, mask_nodes(source, ranges))


def _with_few_bits(source: Path, target: Path, bits: int) -> None:
    quantizer = MatMulNBitsQuantizer(onnx.load(source), bits=bits, block_size=128, is_symmetric=True, accuracy_level=4)
    with quiet():
        quantizer.process()
    onnx.save(quantizer.model.model, str(target))
