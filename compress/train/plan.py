"""What a training run is told: frozen, checked, and part of its key in the store. Pure data, no torch."""

from dataclasses import dataclass
from typing import Literal

OptimizerName = Literal["adamw", "sgd"]


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """How long, how fast and how often.

    batch_size: samples of one optimizer step; accumulation: parts a step is computed in; warmup: share of all steps;
    clip_norm: largest norm of the whole gradient; freeze_norm_epoch: from this epoch on (0 is the first) batch
    normalisation keeps its statistics; checkpoint_seconds: between two checkpoints, 0 for one after every step.
    """

    epochs: int
    batch_size: int = 64
    learning_rate: float
    optimizer: OptimizerName = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.0
    warmup: float = 0.05
    clip_norm: float = 1.0
    accumulation: int = 1
    freeze_norm_epoch: int | None = None
    seed: int = 0
    checkpoint_seconds: float = 30.0

    def steps_per_epoch(self, samples: int) -> int:
        """Whole batches of an epoch; the last, smaller one is left out unless it is the only one."""
        return max(1, samples // self.batch_size)
