"""Optimizers by name: one literal table, each entry a function of parameters and plan."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from compress.train.plan import OptimizerName, TrainPlan


def make_optimizer(parameters: Iterable[nn.Parameter], plan: TrainPlan) -> torch.optim.Optimizer:
    """The plan's optimizer. Matrices and filters decay; biases, norms and other vectors do not."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": plan.weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    return OPTIMIZERS[plan.optimizer]([group for group in groups if group["params"]], plan)


def _adamw(groups: list[dict[str, object]], plan: TrainPlan) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=plan.learning_rate)


def _sgd(groups: list[dict[str, object]], plan: TrainPlan) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=plan.learning_rate, momentum=plan.momentum)


Maker = Callable[[list[dict[str, object]], TrainPlan], torch.optim.Optimizer]
OPTIMIZERS: dict[OptimizerName, Maker] = {"adamw": _adamw, "sgd": _sgd}
