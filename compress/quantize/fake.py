"""Fake quantization with the target's own arithmetic, and gradients that pass straight through the rounding."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class WeightGrid:
    """Integer values a weight may take. symmetric: around zero, the widest value at `qmax`; else from low to high.

    axis: of the channels, each with a scale of its own; None: one scale.
    """

    qmin: int
    qmax: int
    symmetric: bool
    axis: int | None


def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int) -> Tensor:
    """(q - zero_point) * scale with q = clamp(round(x / scale) + zero_point, qmin, qmax), as ONNX QuantizeLinear.

    x: any shape; scale, zero_point: that broadcast to it. Halves go to the even neighbour. The gradient of x is that of
    the clamp alone, and the scale's is the one of learned step sizes (Esser et al., ICLR 2020, equation 3).
    """
    rounded = _RoundStraight.apply(x / scale)
    q = torch.clamp(rounded + zero_point, qmin, qmax)
    return (q - zero_point) * scale


class _RoundStraight(torch.autograd.Function):
    """Round to the nearest whole number; gradients pass as if it were not there (Bengio et al. 2013)."""

    @staticmethod
    def forward(_context: Any, x: Tensor) -> Tensor:
        return torch.round(x)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient


def weight_scale(weight: Tensor, grid: WeightGrid) -> tuple[Tensor, Tensor]:
    """Scale and zero point from the weight's own range, broadcastable to it: what the quantizer will choose."""
    others = [i for i in range(weight.ndim) if i != grid.axis]
    if grid.symmetric:
        widest = weight.detach().abs().amax(dim=others, keepdim=True)
        scale = widest.double() * 2 / (grid.qmax - grid.qmin)
        return _or_one(scale).to(weight.dtype), torch.zeros_like(widest)
    low = weight.detach().amin(dim=others, keepdim=True).clamp(max=0).double()
    high = weight.detach().amax(dim=others, keepdim=True).clamp(min=0).double()
    scale = _or_one((high - low) / (grid.qmax - grid.qmin))
    return scale.to(weight.dtype), torch.round(grid.qmin - low / scale).to(weight.dtype)


def best_scale(weight: Tensor, grid: WeightGrid, candidates: int = 40) -> Tensor:
    """Of shrunken ranges, the scale with the least squared rounding error, broadcastable to the weight.

    On a narrow grid one outlier costs all other weights their resolution, so cutting it off is the better start.
    """
    widest, zero = weight_scale(weight, grid)
    others = [i for i in range(weight.ndim) if i != grid.axis]
    best, least = widest, torch.full_like(widest, torch.inf)
    for i in range(candidates):
        scale = widest * (1.0 - 0.8 * i / candidates)
        wrong = fake_quantize(weight.detach(), scale, zero, grid.qmin, grid.qmax) - weight.detach()
        error = wrong.square().sum(dim=others, keepdim=True)
        best, least = torch.where(error < least, scale, best), torch.minimum(error, least)
    return best


def activation_scale(low: float, high: float, qmin: int, qmax: int) -> tuple[float, int]:
    """Scale and zero point of a range by ONNX Runtime's rule: zero is always inside and exact."""
    import numpy as np
    from onnxruntime.quantization.quant_utils import compute_scale_zp

    zero_point, scale = compute_scale_zp(
        np.array(low, dtype=np.float32),
        np.array(high, dtype=np.float32),
        np.array(qmin, dtype=np.int64),
        np.array(qmax, dtype=np.int64),
    )
    return float(scale), int(zero_point)


def _or_one(scale: Tensor) -> Tensor:
    """A weight or channel of zeros rounds to zero with any scale."""
    return torch.where(scale > 0, scale, torch.ones_like(scale))
