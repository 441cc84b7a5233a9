"""BatchNorm folded into the convolution or matrix product before it, in the torch module.

Exporters fold it into plain weights. Behind a weight that is rounded in the graph they cannot, and the leftover
BatchNormalization keeps the runtime from fusing convolution and activation.
"""

import copy
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from compress.data import Array
from compress.export.onnx import call_arguments, evaluating, name_outputs

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# Of the largest output: folding changes the order of float32 products and nothing else.
CLOSE = 1e-4


def fold_norms(model: nn.Module, feeds: dict[str, Array]) -> tuple[nn.Module, list[str]]:
    """A copy of `model` in eval mode with every BatchNorm folded that can be, and the names of those that cannot.

    feeds: a few samples, each (n, ...). A fold that changes the outputs is taken back: the layer's result has then
    another reader than the BatchNorm.
    """
    plain = copy.deepcopy(model).eval()
    pairs, norms = _pairs(plain, feeds)
    before = _outputs(plain, feeds)
    folded = _with_folds(plain, pairs)
    if not _same(before, _outputs(folded, feeds)):
        kept: dict[str, str] = {}
        for maker, norm in pairs.items():
            if _same(before, _outputs(_with_folds(plain, {maker: norm}), feeds)):
                kept[maker] = norm
        pairs, folded = kept, _with_folds(plain, kept)
    return folded, sorted(norms - set(pairs.values()))


def _pairs(model: nn.Module, feeds: dict[str, Array]) -> tuple[dict[str, str], set[str]]:
    """Layer to the BatchNorm that takes its result, both called once; and the names of all BatchNorms."""
    makers: dict[int, str] = {}
    found: dict[str, str] = {}
    calls: Counter[str] = Counter()
    kept: list[Tensor] = []  # a tensor that is gone could lend its identity to the next one

    def gave(name: str, out: Any) -> None:
        calls[name] += 1
        if isinstance(out, Tensor):
            kept.append(out)
            makers[id(out)] = name

    def took(name: str, args: tuple[Any, ...]) -> None:
        calls[name] += 1
        if args and id(args[0]) in makers:
            found[makers[id(args[0])]] = name

    handles, norms = [], set()
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            norms.add(name)
            handles.append(module.register_forward_pre_hook(lambda _module, args, name=name: took(name, args)))
        elif isinstance(module, (*CONVS, *TRANSPOSED, nn.Linear)):
            handles.append(module.register_forward_hook(lambda _module, _args, out, name=name: gave(name, out)))
    try:
        _outputs(model, feeds)
    finally:
        for handle in handles:
            handle.remove()
    return {maker: norm for maker, norm in found.items() if calls[maker] == calls[norm] == 1}, norms


def _with_folds(model: nn.Module, pairs: dict[str, str]) -> nn.Module:
    folded = copy.deepcopy(model)
    for maker, norm in pairs.items():
        layer: Any = folded.get_submodule(maker)
        behind: Any = folded.get_submodule(norm)
        if isinstance(layer, nn.Linear):
            fused: nn.Module = fuse_linear_bn_eval(layer, behind)
        else:
            fused = fuse_conv_bn_eval(layer, behind, transpose=isinstance(layer, TRANSPOSED))
        folded.set_submodule(maker, fused)
        folded.set_submodule(norm, nn.Identity())
    return folded


def _outputs(model: nn.Module, feeds: dict[str, Array]) -> list[Array]:
    args, kwargs = call_arguments({name: torch.from_numpy(values) for name, values in feeds.items()})
    with evaluating(model), torch.no_grad():
        return [tensor.numpy() for tensor in name_outputs(model(*args, **kwargs)).values()]


def _same(a: list[Array], b: list[Array]) -> bool:
    return all(
        bool(np.abs(one - other).max() <= CLOSE * max(float(np.abs(one).max()), 1e-6))
        for one, other in zip(a, b, strict=True)
    )
