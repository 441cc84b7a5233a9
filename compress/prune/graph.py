"""torch-pruning's dependency graph, asked within a time limit."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from compress.export.onnx import call_arguments, evaluating, name_outputs, quiet
from compress.prune.checks import Feeds
from compress.prune.layers import Role
from compress.prune.time_limit import within

# One layer whose dependencies take longer is left whole.
GRAPH_SECONDS = 60.0
GROUP_SECONDS = 10.0
# torch-pruning goes round in circles in some nets, with more positions each time (8, 288, 10368, ... around one
# torch.nn.MultiheadAttention) until memory ends. A layer's channels have no more positions than a flattened sample of
# the net's largest output; this many times that is a circle.
MOST_TIMES_LARGEST = 4


class CircleError(Exception):
    """The dependencies of a layer never end."""


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
        batch = max(1, *(len(values) for values in tensors.values()))
        sizes = [max((*parameter.shape, 1)) for parameter in self.copy.parameters()]
        with (
            within(GRAPH_SECONDS),
            torch.enable_grad(),
            quiet(),
            evaluating(self.copy),
            _sized(self.copy, sizes, batch),
        ):
            self.graph.build_dependency(self.copy, tensors, forward_fn=_traced, verbose=False)
        self.most_positions = MOST_TIMES_LARGEST * max(sizes)

    def group(self, name: str, channels: Sequence[int]) -> Any:
        """torch-pruning's group of these output channels of a layer."""
        layer = self.copy.get_submodule(name)
        pruner = self.graph.get_pruner_of_module(layer)
        with within(GROUP_SECONDS), _bounded(self.most_positions), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.graph.get_pruning_group(layer, pruner.prune_out_channels, list(channels))

    def role(self, dep: Any) -> Role:
        out, into = self.graph.is_out_channel_pruning_fn(dep.handler), self.graph.is_in_channel_pruning_fn(dep.handler)
        return "through" if out and into else "out" if out else "in"


def _traced(model: nn.Module, tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    args, kwargs = call_arguments(tensors)
    return [values for values in name_outputs(model(*args, **kwargs)).values() if values.grad_fn is not None]


@contextmanager
def _sized(model: nn.Module, sizes: list[int], batch: int) -> Iterator[None]:
    """Notes how many values a sample has in the output of every layer."""

    def note(_module: nn.Module, _given: Any, output: Any) -> None:
        parts = output if isinstance(output, tuple | list) else (output,)
        sizes.extend(part.numel() // batch for part in parts if isinstance(part, torch.Tensor))

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _bounded(most: int) -> Iterator[None]:
    """torch-pruning's groups raise CircleError when an item of theirs has more than `most` positions."""
    from torch_pruning.dependency import graph

    class Bounded(graph.Group):
        def add_dep(self, dep: Any, idxs: Sequence[Any]) -> None:
            if len(idxs) > most:
                raise CircleError(f"its channels depend on one another in a circle, {len(idxs)} positions by now")
            super().add_dep(dep, idxs)

    plain, graph.Group = graph.Group, Bounded
    try:
        yield
    finally:
        graph.Group = plain
