"""A copy of the user's module that rounds what the target's file rounds, on the same grids, and can be trained.

nvidia-modelopt puts its TensorQuantizer into every Conv and Linear and in front of or behind other modules; what the
quantizers compute is ours, through the library's backend hook, for its own arithmetic has neither ONNX Runtime's
zero points and 7-bit grid nor weights with BatchNorm folded in. See docs/design/qat.md.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from compress.data import Array, Split
from compress.export.onnx import call_arguments, evaluating
from compress.quantize.fake import WeightGrid, activation_scale
from compress.quantize.grid import limit_of
from compress.quantize.modelopt import library
from compress.quantize.placement import PlacedWeight, Placement, channel_axis
from compress.quantize.points import Activation
from compress.quantize.ranges import range_of
from compress.quantize.rounding import ActivationRounding, Rounding, SharedRounding, WeightRounding
from compress.quantize.schemes import Scheme

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

BACKEND = "onnxruntime"
OBSERVE_BATCH = 64


class Rounded(nn.Module):
    """The user's module and the quantizers of its activations, side by side: the module itself gains no member."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.points = nn.ModuleList()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Whatever the user's module takes and gives."""
        return self.net(*args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """model: the copy with quantizers; activations, weights: by the file's names; missing: what is not imitated."""

    model: Rounded
    activations: dict[str, ActivationRounding]
    weights: dict[str, WeightRounding]
    missing: tuple[str, ...]
    names: tuple[str, ...]

    def observe_(self, split: Split) -> None:
        """Set the grid of every activation to its range over the split, with weights rounded and activations not."""
        for one in self.activations.values():
            one.low, one.high, one.observing = float("inf"), float("-inf"), True
        device = next(self.model.parameters()).device
        with evaluating(self.model), torch.no_grad():
            for inputs, _ in split.batches(OBSERVE_BATCH):
                tensors = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
                args, kwargs = call_arguments(tensors)
                self.model(*args, **kwargs)
        for one in self.activations.values():
            one.observing = False
            one.set_range_(one.low, one.high)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """(low, high) by tensor of the float file, as the grids have them."""
        return {name: one.range for name, one in self.activations.items() if not one.fixed}

    def weight_scales(self) -> dict[str, Array]:
        """Learned scales by the file's initialiser: () or (channels,). Empty where weights keep 8 bits."""
        return {name: one.learned_scale() for name, one in self.weights.items() if one.learn}

    def plain_state(self) -> dict[str, Tensor]:
        """The user's own weights and statistics, under the user's names, without anything of the quantizers."""
        state = self.model.net.state_dict()
        return {name: state[name].detach().clone() for name in self.names}


def imitate(model: nn.Module, placement: Placement, scheme: Scheme, ranges: "TensorsData") -> Imitation:
    """A copy of `model` that rounds as the file of `placement` does. ranges: those the file was quantized with."""
    names = tuple(model.state_dict())
    rounded = Rounded(_with_quantizers(model))
    modules = dict(rounded.net.named_modules())
    activations: dict[str, ActivationRounding] = {}
    for name, point in placement.outputs.items():
        quantizer = _place_(rounded, point, activations, ranges)
        modules[name].register_forward_hook(lambda _module, _args, out, quantizer=quantizer: quantizer(out))
    for name, point in placement.inputs.items():
        quantizer = _place_(rounded, point, activations, ranges)
        modules[name].register_forward_pre_hook(
            lambda _module, args, quantizer=quantizer: (quantizer(args[0]), *args[1:])
        )
    weights, lost = _round_weights(modules, placement.weights, scheme)
    return Imitation(
        model=rounded, activations=activations, weights=weights, missing=(*placement.missing, *lost), names=names
    )


def _place_(
    rounded: Rounded, point: Activation, known: dict[str, ActivationRounding], ranges: "TensorsData"
) -> nn.Module:
    """A quantizer for one place; tensors taken at several places, or handed on, share one grid."""
    quantizer = _new_quantizer()
    rounded.points.append(quantizer)
    owner = known.get(point.owner)
    if owner is not None:
        _set_rounding_(quantizer, SharedRounding(of=owner) if point.owner != point.tensor else owner)
        return quantizer
    found = range_of(ranges, point.tensor) if point.owner == point.tensor else None
    grid = None if found is None else activation_scale(*found, point.qmin, point.qmax)
    one = ActivationRounding(point=point, quantizer=quantizer, fixed=grid != (point.scale, point.zero_point))
    if found is not None:
        one.set_range_(*found)
    known[point.tensor] = one
    _set_rounding_(quantizer, one)
    return quantizer


def _round_weights(
    modules: Mapping[str, nn.Module], placed: tuple[PlacedWeight, ...], scheme: Scheme
) -> tuple[dict[str, WeightRounding], tuple[str, ...]]:
    """Turn the library's weight quantizers on where the file rounds a weight. Returns those it has none for, too."""
    found, lost = {}, []
    for one in placed:
        # The library adds members to modules and quantizers that torch's own types do not know.
        module: Any = modules[one.module]
        quantizer: Any = getattr(module, "weight_quantizer", None)
        if not isinstance(quantizer, nn.Module):
            lost.append(one.weight.name)
            continue
        axis = channel_axis(module)
        rounding = WeightRounding(
            quantizer=quantizer,
            grid=weight_grid(scheme, None if one.weight.axis is None else axis),
            norm=modules[one.norm] if one.norm else None,
            channels=axis,
            learn=scheme.weight_bits < 8,
        )
        rounding.begin_(module.weight)
        _set_rounding_(quantizer, rounding)
        module.weight_quantizer.enable()
        found[one.weight.name] = rounding
    return found, tuple(lost)


def weight_grid(scheme: Scheme, axis: int | None) -> WeightGrid:
    """The values that the quantizer gives a weight under the scheme."""
    from onnx import TensorProto
    from onnxruntime.quantization.quant_utils import get_qmin_qmax_for_qType

    if scheme.weight_bits < 8:
        limit = limit_of(scheme.weight_bits)
        return WeightGrid(qmin=-limit, qmax=limit, symmetric=True, axis=axis)
    kind, symmetric = (TensorProto.INT8, True) if scheme.weight == "s8" else (TensorProto.UINT8, False)
    qmin, qmax = get_qmin_qmax_for_qType(kind, reduce_range=scheme.reduced, symmetric=symmetric)
    return WeightGrid(qmin=int(qmin), qmax=int(qmax), symmetric=symmetric, axis=axis)


def _with_quantizers(model: nn.Module) -> nn.Module:
    """A copy with the library's quantizers inserted, every one switched off."""
    with library():
        import modelopt.torch.quantization as mtq

        off = {"quant_cfg": [{"quantizer_name": "*", "enable": False}], "algorithm": None}
        found: nn.Module = mtq.quantize(copy.deepcopy(model), off)
    return found


def _new_quantizer() -> nn.Module:
    with library():
        from modelopt.torch.quantization.nn import TensorQuantizer

        quantizer: nn.Module = TensorQuantizer()
    return quantizer


def _set_rounding_(quantizer: Any, rounding: Rounding) -> None:
    """Let the library's quantizer compute with `rounding`, through its backend hook."""
    with library():
        from modelopt.torch.quantization.nn import is_registered_quant_backend, register_quant_backend

        if not is_registered_quant_backend(BACKEND):
            register_quant_backend(BACKEND, lambda x, one: one.rounding(x))
        quantizer.set_from_attribute_config({"backend": BACKEND})
    quantizer.rounding = rounding
