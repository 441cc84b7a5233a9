"""The record of a training run: plain data for the report and for `train.json`."""

import resource
import sys
from dataclasses import asdict, dataclass

import torch

from compress.train.plan import TrainPlan
from compress.train.schedule import rate_at
from compress.train.state import CURVE_POINTS, State


@dataclass(frozen=True, kw_only=True)
class TrainRecord:
    """best_epoch 0: the weights training started from; stopped: why it ended early, or nothing.

    step_ms: mean time of an optimizer step; wait_share: part of it spent on reading samples; peak_memory_bytes: of
    this process, on the accelerator where there is one; losses, rates: means over stretches of `stretch` steps.
    """

    steps: int
    epochs: list[dict[str, float]]
    best_epoch: int
    best_score: float
    stopped: str
    samples: int
    step_ms: float
    samples_per_s: float
    wait_share: float
    peak_memory_bytes: int
    stretch: int
    losses: list[float]
    rates: list[float]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def make_record(state: State, plan: TrainPlan, samples: int, stopped: str) -> TrainRecord:
    """samples: how many were trained on."""
    total = plan.epochs * plan.steps_per_epoch(samples)
    stretch = max(1, total // CURVE_POINTS)
    rates = [rate_at(step, total=total, warmup=plan.warmup, peak=plan.learning_rate) for step in range(state.step)]
    seconds = state.seconds or 1e-9
    return TrainRecord(
        steps=state.step, epochs=state.epochs, best_epoch=state.best_epoch, best_score=state.best_score,
        stopped=stopped, samples=samples, step_ms=1e3 * seconds / max(1, state.step),
        samples_per_s=state.step * min(plan.batch_size, samples) / seconds, wait_share=state.waited / seconds,
        peak_memory_bytes=_peak_memory_bytes(), stretch=stretch,
        losses=_means(state.losses, stretch), rates=_means(rates, stretch),
    )  # fmt: skip


def _means(values: list[float], stretch: int) -> list[float]:
    parts = [values[start : start + stretch] for start in range(0, len(values), stretch)]
    return [sum(part) / len(part) for part in parts]


def _peak_memory_bytes() -> int:
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
