"""How much each unit of a group matters, by torch-pruning's criteria, on the weights a net has now."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.errors import InputError
from compress.prune.graph import Graph
from compress.prune.groups import Group

ImportanceName = Literal["magnitude", "taylor", "bn_scale"]
Scores = NDArray[np.float64]
# A loss of the whole net, of which Taylor's criterion takes gradients.
LossOf = Callable[[nn.Module], Tensor]


def importance_of(
    graph: Graph, groups: Sequence[Group], name: ImportanceName, loss: LossOf | None = None
) -> dict[str, Scores]:
    """Scores (units,) by group; the mean over a group's channels is 1. The graph's own copy holds the weights.

    magnitude: squared L2 norms of filters (Li et al. 2017), averaged over the layers that share the channels; taylor:
    |weight x gradient| likewise (Molchanov et al. 2019), for which `loss` is needed; bn_scale: |gamma| (Liu et al.
    2017). What a criterion does not know, such as groups without a BatchNorm, is ranked by magnitude. Raises
    InputError when the scores are no numbers.
    """
    import torch_pruning

    fallback = torch_pruning.importance.GroupMagnitudeImportance(p=2)
    criterion = fallback
    if name == "bn_scale":
        criterion = torch_pruning.importance.BNScaleImportance()
    if name == "taylor":
        assert loss is not None, "Taylor's criterion needs a loss"
        criterion = torch_pruning.importance.GroupTaylorImportance()
        graph.copy.zero_grad()
        with torch.enable_grad():
            loss(graph.copy).backward()
    return {group.name: _by_unit(graph, group, criterion, fallback) for group in groups}


def _by_unit(graph: Graph, group: Group, criterion: Any, fallback: Any) -> Scores:
    items = graph.group(group.name, range(group.channels))
    scores = criterion(items)
    if scores is None:
        scores = fallback(items)
    channels = scores.detach().double().numpy()
    if not np.isfinite(channels).all():
        fact = f"the importance of {group.name}'s channels is no number"
        raise InputError("stages.prune.importance", fact, "Check the weights, or write importance: magnitude")
    return np.array([channels[list(unit)].sum() for unit in group.units])
