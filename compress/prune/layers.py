"""Which tensors of a layer hold its channels, and where: one literal table of kinds. Torch's layers only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

# through: the channels that come in go out, each by itself.
Role = Literal["out", "in", "through"]


@dataclass(frozen=True, kw_only=True)
class Held:
    """A tensor of a layer with channels along `dim`. period: where it holds one group's channels for all, else 0."""

    tensor: str
    dim: int
    period: int = 0


class UnknownLayerError(Exception):
    """A layer whose channels cannot be taken away; the text says why."""


def held_by(layer: nn.Module, role: Role) -> list[Held]:
    """Where the layer holds the channels of that role. Raises UnknownLayerError."""
    for kind, find in _KINDS.items():
        if isinstance(layer, kind):
            return [one for one in find(layer, role) if getattr(layer, one.tensor, None) is not None]
    raise UnknownLayerError(f"layers of kind {type(layer).__name__} are left whole")


def ties(layer: nn.Module, role: Role, positions: Sequence[int]) -> list[int]:
    """A class for each channel position: positions of one class go together or stay together."""
    if isinstance(layer, nn.GroupNorm):
        size = layer.num_channels // layer.num_groups  # whole groups only: the rest would change their statistics
        return [position // size for position in positions]
    period = _period(layer, role)
    return [position % period if period else position for position in positions]


def tied_size(layer: nn.Module, role: Role) -> int:
    """How many positions a whole class holds."""
    if isinstance(layer, nn.GroupNorm):
        return int(layer.num_channels // layer.num_groups)
    return int(layer.groups) if _period(layer, role) else 1  # type: ignore[arg-type]


def resize_(layer: nn.Module) -> None:
    """Set the sizes a layer speaks of to those of its tensors, which were cut."""
    if isinstance(layer, _ConvNd):
        _resize_conv_(layer)
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, _BatchNorm | _InstanceNorm):
        given = next(one for one in (layer.weight, layer.running_mean) if one is not None)
        layer.num_features = len(given)
    elif isinstance(layer, nn.LayerNorm):
        layer.normalized_shape = tuple(layer.weight.shape)
    elif isinstance(layer, nn.GroupNorm):
        size = layer.num_channels // layer.num_groups
        layer.num_channels = len(layer.weight)
        layer.num_groups = layer.num_channels // size
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = len(layer.weight)
    elif isinstance(layer, nn.Embedding):
        layer.embedding_dim = layer.weight.shape[1]


def is_depthwise(layer: nn.Module) -> bool:
    return isinstance(layer, _ConvNd) and 1 < layer.groups == layer.in_channels == layer.out_channels


def _resize_conv_(layer: _ConvNd) -> None:
    wide, narrow = (1, 0) if isinstance(layer, _ConvTransposeNd) else (0, 1)
    if is_depthwise(layer):
        layer.groups = layer.in_channels = layer.out_channels = layer.weight.shape[0]
        return
    # weight: (out, in / groups, ...), transposed (in, out / groups, ...)
    outputs, inputs = layer.weight.shape[wide], layer.weight.shape[narrow]
    layer.out_channels = outputs * (layer.groups if wide == 1 else 1)
    layer.in_channels = inputs * (layer.groups if narrow == 1 else 1)


def _period(layer: nn.Module, role: Role) -> int:
    """Channels of one group of a grouped convolution; 0 for every other layer."""
    if not isinstance(layer, _ConvNd) or layer.groups == 1 or is_depthwise(layer):
        return 0
    return (layer.out_channels if role == "out" else layer.in_channels) // layer.groups


def _convolution(layer: nn.Module, role: Role) -> list[Held]:
    assert isinstance(layer, _ConvNd)
    transposed = isinstance(layer, _ConvTransposeNd)
    if is_depthwise(layer):
        return [Held(tensor="weight", dim=0), Held(tensor="bias", dim=0)]
    if role == "through":
        raise UnknownLayerError("a convolution with a filter multiplier is left whole")
    if role == "in":
        return [Held(tensor="weight", dim=0 if transposed else 1, period=0 if transposed else _period(layer, role))]
    weight = Held(tensor="weight", dim=1, period=_period(layer, role)) if transposed else Held(tensor="weight", dim=0)
    return [weight, Held(tensor="bias", dim=0)]


def _linear(_layer: nn.Module, role: Role) -> list[Held]:
    if role == "in":
        return [Held(tensor="weight", dim=1)]
    return [Held(tensor="weight", dim=0), Held(tensor="bias", dim=0)]


def _norm(layer: nn.Module, _role: Role) -> list[Held]:
    names = ("weight", "bias", "running_mean", "running_var")
    held = [Held(tensor=name, dim=0) for name in names if getattr(layer, name, None) is not None]
    if not held:
        raise UnknownLayerError(f"a {type(layer).__name__} without tensors does not say its channels")
    return held


def _layer_norm(layer: nn.Module, role: Role) -> list[Held]:
    assert isinstance(layer, nn.LayerNorm)
    if len(layer.normalized_shape) != 1:
        raise UnknownLayerError("a LayerNorm over several axes is left whole")
    return _norm(layer, role)


def _prelu(layer: nn.Module, _role: Role) -> list[Held]:
    assert isinstance(layer, nn.PReLU)
    return [Held(tensor="weight", dim=0)] if layer.num_parameters > 1 else []


def _embedding(_layer: nn.Module, _role: Role) -> list[Held]:
    return [Held(tensor="weight", dim=1)]


_KINDS: dict[type[nn.Module], Callable[[nn.Module, Role], list[Held]]] = {
    _ConvNd: _convolution,
    nn.Linear: _linear,
    _BatchNorm: _norm,
    _InstanceNorm: _norm,
    nn.GroupNorm: _norm,
    nn.LayerNorm: _layer_norm,
    nn.PReLU: _prelu,
    nn.Embedding: _embedding,
}
