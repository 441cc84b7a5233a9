"""torch-pruning's dependency graph, asked within a time limit."""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compress.export.onnx import call_arguments, evaluating, name_outputs, quiet
from compress.prune.checks import Feeds
from compress.prune.layers import Role
from compress.prune.time_limit import within

# torch-pruning never comes back from some nets, and takes 50 MB a second meanwhile. One layer that takes longer is left
# whole.
GRAPH_SECONDS = 60.0
GROUP_SECONDS = 10.0


class Graph:
    """torch-pruning's dependency graph of a copy whose parameters all take gradients, as tracing needs them."""

    def __init__(self, model: nn.Module, feeds: Feeds) -> None:
        import torch_pruning

        self.model, self.feeds = model, feeds
        self.copy = copy.deepcopy(model).eval()
        for parameter in self.copy.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
        self.names = {module: name for name, module in self.copy.named_modules()}
        self.graph = torch_pruning.DependencyGraph()
        tensors = {name: torch.from_numpy(values.copy()) for name, values in feeds.items()}
        with within(GRAPH_SECONDS), torch.enable_grad(), quiet(), evaluating(self.copy):
            self.graph.build_dependency(self.copy, tensors, forward_fn=_traced, verbose=False)

    def group(self, name: str, channels: Sequence[int]) -> Any:
        """torch-pruning's group of these output channels of a layer."""
        layer = self.copy.get_submodule(name)
        pruner = self.graph.get_pruner_of_module(layer)
        with within(GROUP_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.graph.get_pruning_group(layer, pruner.prune_out_channels, list(channels))

    def role(self, dep: Any) -> Role:
        out, into = self.graph.is_out_channel_pruning_fn(dep.handler), self.graph.is_in_channel_pruning_fn(dep.handler)
        return "through" if out and into else "out" if out else "in"


def _traced(model: nn.Module, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    args, kwargs = call_arguments(tensors)
    return [values for values in name_outputs(model(*args, **kwargs)).values() if values.grad_fn is not None]
