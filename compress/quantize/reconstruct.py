"""Integer codes for a weight that lose least of the layer's output, from the second moments of its input.

With D = (codes - target) x scale and H = E[x x^T], the layer's output is off by E|D x|^2 = tr(D H D^T): Nagel et al.
2020, "Up or Down? Adaptive Rounding", equations 12 to 14. Two ways to make it small, both in torch, batched over
groups: `gptq` rounds one input after the other and lets the rest make up for it (Frantar et al. 2022), `descend` moves
one code at a time to where it costs least, and so never makes things worse.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

DAMPING = 0.01
SWEEPS = 4


@dataclass(frozen=True, kw_only=True)
class Problem:
    """target: (groups, outputs, inputs) weights in steps, unrounded; scale: (groups, outputs, 1 or inputs), the step;

    gram: (groups, inputs, inputs), E[x x^T]; low, high: the codes allowed.
    """

    target: Tensor
    scale: Tensor
    gram: Tensor
    low: int
    high: int

    def nearest(self) -> Tensor:
        return self.target.round().clamp(self.low, self.high)

    def loss(self, codes: Tensor) -> Tensor:
        """tr(D H D^T) per group and output: (groups, outputs)."""
        off = (codes - self.target) * self.scale
        return ((off @ self.gram) * off).sum(dim=-1)


def reconstruct(problem: Problem, sweeps: int = SWEEPS) -> Tensor:
    """The better of two starts, each descended, row by row; never worse than rounding to nearest."""
    nearest = problem.nearest()
    best, least = nearest, problem.loss(nearest)
    for start in (nearest, gptq(problem)):
        codes = descend(problem, start, sweeps)
        loss = problem.loss(codes)
        better = loss < least
        best, least = torch.where(better[..., None], codes, best), torch.minimum(loss, least)
    return best


def descend(problem: Problem, start: Tensor, sweeps: int = SWEEPS) -> Tensor:
    """Coordinate descent over codes; each step takes the best whole code given all others."""
    codes = start.clone()
    scale = problem.scale.expand_as(problem.target)
    off = (codes - problem.target) * scale
    pull = off @ problem.gram
    curvature = problem.gram.diagonal(dim1=-2, dim2=-1)
    for _ in range(sweeps):
        changed = False
        for i in range(codes.shape[-1]):
            bend = curvature[:, None, i]
            step = torch.where(bend > 0, -pull[..., i] / (bend.clamp_min(1e-30) * scale[..., i]), 0.0)
            new = (codes[..., i] + step).round().clamp(problem.low, problem.high)
            move = (new - codes[..., i]) * scale[..., i]
            if not bool(move.any()):
                continue
            changed = True
            codes[..., i] = new
            pull += move[..., None] * problem.gram[:, None, i, :]
        if not changed:
            break
    return codes


def gptq(problem: Problem) -> Tensor:
    """Round inputs in order, spreading each error over the inputs not yet rounded."""
    inverse = _inverse_root(problem.gram)
    left = problem.target.clone()
    scale = problem.scale.expand_as(left)
    codes = torch.empty_like(left)
    for i in range(left.shape[-1]):
        codes[..., i] = left[..., i].round().clamp(problem.low, problem.high)
        error = (left[..., i] - codes[..., i]) * scale[..., i] / inverse[:, None, i, i]
        left[..., i + 1 :] -= error[..., None] * inverse[:, None, i, i + 1 :] / scale[..., i + 1 :]
    return codes


def _inverse_root(gram: Tensor) -> Tensor:
    """Upper Cholesky factor of the damped inverse: (groups, inputs, inputs). Inputs that are always zero stay apart."""
    size = gram.shape[-1]
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    damping = DAMPING * diagonal.mean(dim=-1, keepdim=True) + 1e-12
    damped = gram + torch.diag_embed(damping.expand(-1, size) + (diagonal <= 0) * 1.0)
    return torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(damped)), upper=True)
