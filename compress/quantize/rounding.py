"""What the fake quantizers compute: one object per rounded activation and per rounded weight.

Their numbers live in buffers and parameters of the quantizer modules, so that a state dict holds all of them.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from compress.data import Array
from compress.quantize.fake import WeightGrid, activation_scale, best_scale, fake_quantize, weight_scale
from compress.quantize.placement import fold_factor
from compress.quantize.points import Activation


@dataclass(kw_only=True)
class ActivationRounding:
    """Rounds an activation; while observing it lets it through and notes its extremes.

    fixed: the file's grid is not the one its range gives (a Softmax, say, is always [0, 1]), so it stays as it is.
    """

    point: Activation
    quantizer: nn.Module
    fixed: bool
    observing: bool = False

    def __post_init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.quantizer.register_buffer("grid_range", torch.zeros(2))
        self.quantizer.register_buffer("grid_scale", torch.tensor(self.point.scale))
        self.quantizer.register_buffer("grid_zero_point", torch.tensor(float(self.point.zero_point)))

    def __call__(self, x: Tensor) -> Tensor:
        if self.observing:
            self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
            return x
        scale, zero_point = self.quantizer.get_buffer("grid_scale"), self.quantizer.get_buffer("grid_zero_point")
        return fake_quantize(x, scale, zero_point, self.point.qmin, self.point.qmax)

    @property
    def range(self) -> tuple[float, float]:
        low, high = self.quantizer.get_buffer("grid_range").tolist()
        return low, high

    def set_range_(self, low: float, high: float) -> None:
        if self.fixed:
            return
        scale, zero_point = activation_scale(low, high, self.point.qmin, self.point.qmax)
        with torch.no_grad():
            self.quantizer.get_buffer("grid_range").copy_(torch.tensor([low, high]))
            self.quantizer.get_buffer("grid_scale").fill_(scale)
            self.quantizer.get_buffer("grid_zero_point").fill_(float(zero_point))


@dataclass(frozen=True, kw_only=True)
class SharedRounding:
    """Rounds with the grid of the tensor that hands its scale on; what passes here does not widen it."""

    of: ActivationRounding

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.of.observing else self.of(x)


@dataclass(frozen=True, kw_only=True)
class WeightRounding:
    """Rounds a weight as it stands in the file: with the BatchNorm behind it folded in.

    The factor is taken out again after rounding, so that the BatchNorm can go on learning. learn: the scale is a
    parameter (its logarithm, so that steps are relative), else it follows the widest value.
    """

    quantizer: nn.Module
    grid: WeightGrid
    norm: nn.Module | None
    channels: int
    learn: bool

    def begin_(self, weight: Tensor) -> None:
        """Give a learned scale its first value. weight: the module's own, any shape."""
        if self.learn:
            with torch.no_grad():
                start = best_scale(weight * self._factor(weight), self.grid)
            self.quantizer.register_parameter("grid_log_scale", nn.Parameter(start.log()))

    def __call__(self, weight: Tensor) -> Tensor:
        factor = self._factor(weight)
        inside = weight * factor
        scale, zero_point = self._scale(inside)
        return fake_quantize(inside, scale, zero_point, self.grid.qmin, self.grid.qmax) / factor

    def learned_scale(self) -> Array:
        """() or (channels,) float32."""
        found = self._log_scale().detach().exp()
        value: Array = (
            found.reshape(-1).cpu().numpy() if self.grid.axis is not None else found.reshape(()).cpu().numpy()
        )
        return value

    def _scale(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        if not self.learn:
            return weight_scale(weight, self.grid)
        scale = self._log_scale().exp()
        # The gradient of a scale sums over all its weights; Esser et al., section 2.2, divide by this root.
        share = 1.0 / math.sqrt(self.grid.qmax * weight.numel() / scale.numel())
        return scale * share + (scale * (1.0 - share)).detach(), torch.zeros_like(scale)

    def _log_scale(self) -> Tensor:
        found: Any = self.quantizer.grid_log_scale
        return found

    def _factor(self, weight: Tensor) -> Tensor:
        if self.norm is None:
            return torch.ones((), dtype=weight.dtype, device=weight.device)
        factor = fold_factor(self.norm, weight.ndim, self.channels)
        # A channel that its BatchNorm switches off is zero in the file; dividing by that zero would be NaN here.
        return torch.where(factor == 0, torch.ones_like(factor), factor)


Rounding = ActivationRounding | SharedRounding | WeightRounding
