"""Pruned equals masked: what is cut away, and the same with its contributions set to zero, give the same outputs."""

import copy
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.export.onnx import call_arguments, evaluating, name_outputs
from compress.prune.replay import Structure, replay_

Feeds = Mapping[str, NDArray[np.generic]]
Axis = tuple[str, int]
# Of the largest output. Other orders of sums cost 1e-6; a channel in another's place costs a tenth and more.
TOLERANCE = 1e-4
SHAKES = 2


def refusal(model: nn.Module, structure: Structure, reads: Iterable[Axis], feeds: Feeds) -> str:
    """Why cutting is not masking, in words; empty when it is. reads: axes by which layers take channels in.

    Weights are drawn at random: those of a trained net hide a mistake wherever they are zero.
    """
    for seed in range(SHAKES):
        reason = difference(shaken(model, seed), structure, reads, feeds)
        if reason:
            return reason
    return ""


def difference(model: nn.Module, structure: Structure, reads: Iterable[Axis], feeds: Feeds) -> str:
    """The same on the weights that the model has. feeds: one batch (n, ...) by input name."""
    wanted = outputs_of(masked(model, structure, reads), feeds)
    try:
        pruned = copy.deepcopy(model)
        replay_(pruned, structure)
        found = outputs_of(pruned, feeds)
    except Exception as error:  # whatever the user's forward raises about shapes
        first = next(iter(str(error).splitlines()), "")
        return f"forward fails with fewer channels ({type(error).__name__}: {first[:120]})"
    for name, values in wanted.items():
        if name not in found or found[name].shape != values.shape:
            return f"the model's output '{name}' would lose channels"
        apart, size = (found[name] - values).abs().max(), values.abs().max()
        if not torch.isfinite(size) or not apart <= TOLERANCE * size:
            share = float(apart / size) if size else float("inf")
            return f"outputs differ by {share:.1%} from those of the masked model"
    return ""


def masked(model: nn.Module, structure: Structure, reads: Iterable[Axis]) -> nn.Module:
    """A copy of the whole model in which no layer reads a channel that goes."""
    whole = copy.deepcopy(model)
    tensors = dict(whole.named_parameters())
    for name, dim in reads:
        kept = structure.tensors.get(name, {}).get(dim)
        if kept is not None:
            gone = sorted(set(range(tensors[name].shape[dim])) - set(kept))
            tensors[name].data.index_fill_(dim, torch.tensor(gone, dtype=torch.long), 0.0)
    return whole


def shaken(model: nn.Module, seed: int) -> nn.Module:
    """A copy with weights, biases and statistics drawn at random, none near zero in effect."""
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for name, tensor in [*other.named_parameters(), *other.named_buffers()]:
        kind = name.rpartition(".")[2]
        statistic = kind in ("running_mean", "running_var")
        if tensor.is_floating_point() and (statistic or isinstance(tensor, nn.Parameter)):
            tensor.data.copy_(_drawn(kind, tensor, generator))
    return other


def outputs_of(model: nn.Module, feeds: Feeds) -> dict[str, Tensor]:
    """Floating outputs by name, in eval mode, without gradients."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in feeds.items()}
    args, kwargs = call_arguments(tensors)
    with torch.no_grad(), evaluating(model):
        found = name_outputs(model(*args, **kwargs))
    return {name: values.double() for name, values in found.items() if values.is_floating_point()}


def _drawn(kind: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
    if kind == "running_var" or (kind == "weight" and tensor.ndim == 1):
        return 0.5 + torch.rand(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)
    if tensor.ndim <= 1:
        return 0.3 * drawn
    fan_in = tensor[0].numel()
    return drawn * (2.0 / fan_in) ** 0.5
