"""Statistics of batch normalisation, taken anew: with other channels before it, the old ones are of another net."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from compress.export.onnx import call_arguments, evaluating
from compress.prune.checks import Feeds


def reestimate_(model: nn.Module, batches: Iterable[Feeds]) -> int:
    """Set running means and variances to their averages over the batches. Returns how many layers have them.

    batches: inputs (n, ...) by name, n >= 2. Weights and modes stay as they are.
    """
    norms = [one for one in model.modules() if isinstance(one, _BatchNorm) and one.track_running_stats]
    if not norms:
        return 0
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad(), evaluating(model):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain average over batches
            norm.train()
        for feeds in batches:
            tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in feeds.items()}
            args, kwargs = call_arguments(tensors)
            model(*args, **kwargs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return len(norms)
