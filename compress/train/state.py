"""Where a training run stands: all that a checkpoint must hold beside the plan."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compress.train.checkpoint import Checkpoint, save_checkpoint

# How many points the curves of a record have at most, about.
CURVE_POINTS = 200


@dataclass(kw_only=True)
class State:
    """step: how many are done; losses: one per step; seconds, waited: of all processes that took part."""

    step: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    best_score: float = 0.0
    best_epoch: int = 0
    epochs: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    waited: float = 0.0

    def count_(self, loss: float, *, seconds: float, waited: float) -> None:
        self.step += 1
        self.losses.append(loss)
        self.seconds += seconds
        self.waited += waited

    def end_epoch_(self, score: float, per_epoch: int) -> None:
        mean = sum(self.losses[-per_epoch:]) / per_epoch
        self.epochs.append({"epoch": len(self.epochs) + 1, "loss": mean, "score": score})


def save(folder: Path, state: State, model: nn.Module, optimizer: Any) -> None:
    """Write the state, the weights now and at their best, and the optimizer's moments."""
    moments, numbers = _of_optimizer(optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.best.items()} | moments
    facts = {
        "step": state.step, "best_score": state.best_score, "best_epoch": state.best_epoch, "epochs": state.epochs,
        "losses": state.losses, "seconds": state.seconds, "waited": state.waited, "optimizer": numbers,
    }  # fmt: skip
    save_checkpoint(folder, state.step, Checkpoint(tensors=tensors, facts=facts))


def restore_(state: State, found: Checkpoint, model: nn.Module, optimizer: Any) -> bool:
    """Put everything back as `save` found it. False, with nothing changed, when the checkpoint is of another model."""
    weights = _with_prefix(found.tensors, "model.")
    own = model.state_dict()
    if {name: t.shape for name, t in weights.items()} != {name: t.shape for name, t in own.items()}:
        return False
    model.load_state_dict(weights, strict=True)
    facts = dict(found.facts)
    _into_optimizer_(optimizer, _with_prefix(found.tensors, "optimizer."), facts.pop("optimizer"))
    for name, value in facts.items():
        setattr(state, name, value)
    state.best = _with_prefix(found.tensors, "best.")
    return True


def _of_optimizer(optimizer: Any) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """Moments as tensors by `optimizer.<parameter>.<name>`; what is no tensor as plain numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, entry in optimizer.state_dict()["state"].items():
        for name, value in entry.items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            elif value is not None:
                numbers.setdefault(str(index), {})[name] = value
    return tensors, numbers


def _into_optimizer_(optimizer: Any, tensors: dict[str, Tensor], numbers: dict[str, dict[str, Any]]) -> None:
    entries: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in numbers.items()}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        entries.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
