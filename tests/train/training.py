"""Small tasks for the training loop: real shapes, tiny nets, seconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from compress.data import Split
from compress.metrics import top1
from compress.train.loop import Task
from compress.train.losses import Distillation, frozen

CLASSES, FEATURES = 3, 6


def blobs(samples: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of points that a linear net can tell apart: inputs (n, 6) float32, labels (n,)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, samples)
    centres = np.random.default_rng(99).normal(0, 2, (CLASSES, FEATURES))
    return (centres[labels] + rng.normal(0, 1, (samples, FEATURES))).astype(np.float32), labels


def split(name: str, samples: int, seed: int) -> Split:
    inputs, labels = blobs(samples, seed)
    return Split(name, ({"input": inputs}, labels), np.arange(samples))


def net(seed: int = 0, *, norm: bool = True, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    middle: list[nn.Module] = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(FEATURES, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, CLASSES))


def cross_entropy(outputs: dict[str, Any], _inputs: dict[str, Any], labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs["output"], labels)


def task(model: nn.Module, loss: Callable[..., Any] = cross_entropy, **changes: Any) -> Task:
    held = changes.pop("held", split("held", 60, 2))
    given = {"fit": split("train", 240, 1), "score": top1(held.source[1]).score} | changes
    return Task(model=model, loss=loss, held=held, place="stages.qat", **given)


def distilled(model: nn.Module) -> Distillation:
    return Distillation(teacher=frozen(model), classes=True, temperature=3.0)
