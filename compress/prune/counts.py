"""Multiply-accumulates and parameters of a net as functions of the units each group keeps: arithmetic on shapes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from compress.prune.checks import Axis, Feeds, outputs_of
from compress.prune.groups import Group

Widths = Mapping[str, int]  # units kept, by group
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A layer that multiplies, as called. given: shape of its input (n, ...); uses: of each weight, per sample."""

    name: str
    given: Shape
    uses: int


class Counter:
    """Counts for any widths; nothing is built. Convolutions and Linear layers count; products of activations do not.

    feeds: one batch (n, ...) by input name, on which each layer's places are counted.
    """

    def __init__(self, model: nn.Module, groups: Sequence[Group], feeds: Feeds) -> None:
        self.groups = groups
        self.calls = calls_of(model, feeds)
        self.shapes = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
        self.per_unit = {group.name: _per_unit(group) for group in groups}

    @property
    def whole(self) -> dict[str, int]:
        return {group.name: len(group.units) for group in self.groups}

    def shapes_at(self, widths: Widths) -> dict[str, Shape]:
        """Shapes of all parameters when each group keeps that many units, whichever."""
        sizes = {name: list(shape) for name, shape in self.shapes.items()}
        for group in self.groups:
            removed = len(group.units) - widths[group.name]
            for (tensor, dim), count in self.per_unit[group.name].items():
                if tensor in sizes:  # statistics are no parameters
                    sizes[tensor][dim] -= removed * count
        return {name: tuple(shape) for name, shape in sizes.items()}

    def macs(self, widths: Widths) -> float:
        """Multiply-accumulates of one sample."""
        shapes = self.shapes_at(widths)
        return float(sum(math.prod(shapes[f"{call.name}.weight"]) * call.uses for call in self.calls))

    def params(self, widths: Widths) -> float:
        return float(sum(math.prod(shape) for shape in self.shapes_at(widths).values()))


def calls_of(model: nn.Module, feeds: Feeds) -> list[Call]:
    """Every call of a convolution or Linear layer, in order. feeds: one batch (n, ...) by input name."""
    found: list[Call] = []
    batch = len(next(iter(feeds.values())))

    def watch(name: str, layer: nn.Module) -> Any:
        def hook(_layer: nn.Module, given: tuple[Any, ...], output: torch.Tensor) -> None:
            uses = _places(layer, given[0], output) // batch
            found.append(Call(name=name, given=tuple(given[0].shape), uses=uses))

        return layer.register_forward_hook(hook)

    handles = [watch(name, layer) for name, layer in model.named_modules() if isinstance(layer, _ConvNd | nn.Linear)]
    try:
        outputs_of(model, feeds)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _per_unit(group: Group) -> dict[Axis, int]:
    """Places that one unit takes along each axis; units of a group are alike."""
    unit = set(group.units[0])
    found: dict[Axis, set[int]] = {}
    for cut in group.cuts:
        places = {position for position, root in zip(cut.positions, cut.roots, strict=True) if root in unit}
        found.setdefault(cut.axis, set()).update(places)
    return {axis: len(places) for axis, places in found.items()}


def _places(layer: nn.Module, given: torch.Tensor, output: torch.Tensor) -> int:
    """Places of a batch's output, or of its input where the convolution is transposed."""
    if isinstance(layer, _ConvTransposeNd):
        return given.numel() // given.shape[1]
    if isinstance(layer, _ConvNd):
        return output.numel() // output.shape[1]
    return output.numel() // output.shape[-1]
