"""Quantize a torch module for a GPU with nvidia-modelopt, by the name of one of its configurations, to a Q/DQ file.

The library's import takes many seconds, so nothing of it is imported before it is needed.
"""

import contextlib
import copy
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from compress.data import Split
from compress.errors import InputError
from compress.export.onnx import call_arguments, evaluating, export_legacy, quiet
from compress.quantize.fold_norms import fold_norms
from compress.quantize.gpu_schemes import GpuScheme
from compress.quantize.standard import standardise_

if TYPE_CHECKING:
    import onnx

CALIBRATION_BATCH = 64
FOLD_SAMPLES = 4


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """proto: the file; remarks: what is to be said about it."""

    proto: "onnx.ModelProto"
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """module: a copy with calibrated quantizers; unseen: layers that no calibration sample went through;

    idle: quantizers that were switched off because no product reads them; norms: BatchNorms that could not be folded.
    """

    module: nn.Module
    unseen: tuple[str, ...]
    idle: int
    norms: tuple[str, ...]


def quantize_module(
    model: nn.Module,
    scheme: GpuScheme,
    split: Split,
    output_names: Sequence[str],
    exclude: Sequence[str] = (),
    on_batch: Callable[[int, int], None] = lambda _done, _total: None,
) -> Quantized:
    """The module as a Q/DQ file of standard operators. split: calibrates; exclude: layers to leave in float.

    Raises InputError when nothing was quantized, calibration is not finite, or the file would hold operators that
    ONNX Runtime does not know.
    """
    rounded = round_module(model, scheme, split, exclude, on_batch)
    feeds, _ = split.read(np.arange(min(FOLD_SAMPLES, len(split))))
    with library():
        proto = export_legacy(rounded.module.cpu(), feeds, list(output_names), scheme.opset)
    standardise_(proto)
    return Quantized(proto=proto, remarks=tuple(_remarks(rounded)))


def round_module(
    model: nn.Module,
    scheme: GpuScheme,
    split: Split,
    exclude: Sequence[str],
    on_batch: Callable[[int, int], None],
) -> Rounded:
    """A copy of the module with BatchNorms folded and the configuration's quantizers calibrated on the split."""
    with library():
        import modelopt.torch.quantization as mtq

    if len(split) == 0:
        raise InputError("data.calibration_samples", "there is no sample to calibrate on", "Give a calibration split")
    feeds, _ = split.read(np.arange(min(FOLD_SAMPLES, len(split))))
    plain, norms = fold_norms(model, feeds)
    _check_layers(plain, exclude)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = copy.deepcopy(getattr(mtq, scheme.config))
    config["quant_cfg"] += [{"quantizer_name": f"{name}.*", "enable": False} for name in exclude]
    try:
        with library(), torch.no_grad():
            module: nn.Module = mtq.quantize(
                plain.to(device), config, lambda net: _calibrate(net, split, device, on_batch)
            )
    except AssertionError as error:  # how the library says that ranges are not finite, or that it wants a GPU
        fact = f"{scheme.config} cannot be calibrated ({str(error).strip().splitlines()[0][:200]})"
        raise InputError("data.ref", fact, "Look for NaN and infinity in the calibration split") from error
    unseen, idle = _switch_off_(module)
    return Rounded(module=module, unseen=tuple(unseen), idle=idle, norms=tuple(norms))


def quantizers(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Enabled quantizers of each layer, by kind: {'conv1': {'input': ..., 'weight': ...}}."""
    found: dict[str, dict[str, Any]] = {}
    for name, one in module.named_modules():
        owner, _, kind = name.rpartition(".")
        if kind.endswith("_quantizer") and getattr(one, "is_enabled", False):
            found.setdefault(owner, {})[kind.removesuffix("_quantizer")] = one
    return found


def _calibrate(net: nn.Module, split: Split, device: torch.device, on_batch: Callable[[int, int], None]) -> None:
    done = 0
    with evaluating(net):
        for inputs, labels in split.batches(CALIBRATION_BATCH):
            tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
            args, kwargs = call_arguments(tensors)
            net(*args, **kwargs)
            done += len(labels)
            on_batch(done, len(split))


def _switch_off_(module: nn.Module) -> tuple[list[str], int]:
    """Switch off quantizers that were never calibrated, and those in front of layers without a product.

    What reads a norm's or a pooling's rounded input computes in float all the same: only error is gained.
    """
    unseen, idle = [], 0
    for name, kinds in quantizers(module).items():
        never = [kind for kind, one in kinds.items() if _needs_range(one) and getattr(one, "amax", None) is None]
        if "weight" not in kinds or never:
            for one in kinds.values():
                one.disable()
            unseen += [name] if never and "weight" in kinds else []
            idle += "weight" not in kinds
    return unseen, idle


def _needs_range(quantizer: Any) -> bool:
    """Whether it rounds with a range from calibration; some compute it for every block as it comes."""
    return not getattr(quantizer, "_dynamic", False) and getattr(quantizer, "block_sizes", None) is None


def _check_layers(model: nn.Module, exclude: Sequence[str]) -> None:
    weights = {name: getattr(module, "weight", None) for name, module in model.named_modules()}
    names = [name for name, weight in weights.items() if isinstance(weight, nn.Parameter) and weight.ndim > 1]
    for name in exclude:
        if name not in names:
            fact = f"no layer '{name}' whose quantizers could be switched off"
            raise InputError("exclude", fact, f"Layers are {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}")


def _remarks(rounded: Rounded) -> Iterator[str]:
    if rounded.unseen:
        yield f"never executed on calibration data, left in float: {', '.join(rounded.unseen[:5])}"
    if rounded.idle:
        yield f"{rounded.idle} quantizers in front of layers without a product switched off"
    if rounded.norms:
        yield f"BatchNorm that cannot be folded: {', '.join(rounded.norms[:5])}"


@contextmanager
def library() -> Iterator[None]:
    """The library prints and warns about its own insides, on import most of all."""
    with quiet(), contextlib.redirect_stdout(io.StringIO()):
        yield
