"""Where in a torch module the tensors of an exported file arise: found by value on real samples, not by name.

Names depend on the exporter, and half of the tensors that a Q/DQ file rounds are made by code in some forward, not by a
module. But the tensor that a module gives or takes can be compared with every tensor of the file: where all values
agree, it is the same one. That also proves the placement.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compress.data import Array
from compress.export.onnx import call_arguments, evaluating
from compress.quantize.grid import Weight
from compress.quantize.points import Activation, Points, float_weights, run_exposed

CLOSE = 1e-3
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True, kw_only=True)
class PlacedWeight:
    """module: dotted name; norm: of the BatchNorm that the exporter folds into it, or empty; weight: in the file."""

    module: str
    norm: str
    weight: Weight


@dataclass(frozen=True, kw_only=True)
class Placement:
    """outputs, inputs: module name to the activation it gives, or takes as its first argument; missing: tensors of the
    file that no module gives or takes, which training therefore does not imitate."""

    outputs: dict[str, Activation] = field(default_factory=dict)
    inputs: dict[str, Activation] = field(default_factory=dict)
    weights: tuple[PlacedWeight, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A tensor that passed a module: its value, and the object itself to tell who hands what to whom."""

    module: str
    value: Array
    identity: int


def find_placement(model: nn.Module, path: Path, points: Points, feeds: dict[str, Array]) -> Placement:
    """Match every rounded tensor and weight of the file with the module. feeds: a few samples, each (n, ...)."""
    taken, given = _watch(model, feeds)
    exposed = run_exposed(path, feeds, tuple(point.tensor for point in points.activations))
    outputs: dict[str, Activation] = {}
    inputs: dict[str, Activation] = {}
    missing = []
    for point in points.activations:
        made = _first_match(given, exposed[point.tensor])
        used = [made] if made else _first_takers(_matches(taken, exposed[point.tensor]))
        (outputs if made else inputs).update({seen.module: point for seen in used})
        missing += [] if used else [point.tensor]
    weights = _match_weights(model, points.weights, float_weights(path), _followers(taken, given, model))
    placed = {one.weight.name for one in weights}
    missing += [weight.name for weight in points.weights if weight.name not in placed]
    return Placement(outputs=outputs, inputs=inputs, weights=weights, missing=tuple(missing))


def folded(weight: Tensor, norm: nn.Module | None, *, axis: int = 0) -> Tensor:
    """The weight as the exporter writes it: times gamma / sqrt(running variance + eps) of the BatchNorm behind it."""
    return weight if norm is None else weight * fold_factor(norm, weight.ndim, axis)


def fold_factor(norm: Any, rank: int, axis: int) -> Tensor:
    """(1, ..., channels, ..., 1): what folding a BatchNorm multiplies each channel with."""
    gamma = norm.weight if norm.weight is not None else torch.ones_like(norm.running_var)
    factor = gamma / torch.sqrt(norm.running_var + norm.eps)
    return factor.reshape([-1 if i == axis else 1 for i in range(rank)])


def channel_axis(module: nn.Module) -> int:
    """The axis of a weight that holds its output channels."""
    return 1 if isinstance(module, TRANSPOSED) else 0


def _watch(model: nn.Module, feeds: dict[str, Array]) -> tuple[list[_Seen], list[_Seen]]:
    """First tensors that modules took and gave, in the order of execution."""
    taken: list[_Seen] = []
    given: list[_Seen] = []
    kept: list[Tensor] = []  # an object that is gone could lend its identity to the next one

    def note(seen: list[_Seen], name: str, tensor: Any) -> None:
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            kept.append(tensor)
            seen.append(_Seen(module=name, value=tensor.detach().clone().numpy(), identity=id(tensor)))

    handles = []
    for name, module in model.named_modules():
        handles.append(
            module.register_forward_pre_hook(
                lambda _module, args, name=name: note(taken, name, args[0] if args else None)
            )
        )
        handles.append(module.register_forward_hook(lambda _module, _args, out, name=name: note(given, name, out)))
    try:
        args, kwargs = call_arguments({name: torch.from_numpy(values) for name, values in feeds.items()})
        with evaluating(model), torch.no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return taken, given


def _first_match(seen: Sequence[_Seen], value: Array) -> _Seen | None:
    return next(_matches(seen, value), None)


def _first_takers(seen: Iterator[_Seen]) -> list[_Seen]:
    """Of modules that took the same object only the outermost: it hands the rounded one to those inside."""
    return list({one.identity: one for one in reversed(list(seen))}.values())[::-1]


def _matches(seen: Sequence[_Seen], value: Array) -> Iterator[_Seen]:
    return (one for one in seen if _same(one.value, value))


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max() <= CLOSE * max(float(np.abs(b).max()), 1e-6))


def _followers(taken: Sequence[_Seen], given: Sequence[_Seen], model: nn.Module) -> dict[str, str]:
    """For each module whose output goes straight into a BatchNorm, that BatchNorm's name."""
    modules = dict(model.named_modules())
    norms = [one for one in taken if isinstance(modules[one.module], nn.modules.batchnorm._BatchNorm)]
    return {maker.module: norm.module for maker in given for norm in norms if maker.identity == norm.identity}


def _match_weights(
    model: nn.Module, weights: Sequence[Weight], floats: dict[str, Array], norms: dict[str, str]
) -> tuple[PlacedWeight, ...]:
    modules = dict(model.named_modules())
    placed = []
    for name, module in modules.items():
        if not isinstance(module, WEIGHTED):
            continue
        norm = modules.get(norms.get(name, ""))
        with torch.no_grad():
            own = folded(module.weight, norm if name in norms else None, axis=channel_axis(module)).numpy()
        found = next((one for one in weights if _fits(own, floats[one.name])), None)
        if found is not None:
            placed.append(PlacedWeight(module=name, norm=norms.get(name, ""), weight=found))
    return tuple(placed)


def _fits(own: Array, stored: Array) -> bool:
    """Exporters may store a matrix transposed."""
    return _same(own, stored) or (own.ndim == 2 and _same(own.T, stored))
