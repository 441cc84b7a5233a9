"""The training loop: one for quantization-aware training, fine-tuning and distillation.

What a step does depends on the weights before it, the plan and the step's number, and on nothing else. So a run that
was killed and goes on from its last checkpoint ends with the same bits as one that was not.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from compress.data import Array, Split
from compress.errors import CompressError, EnvironmentProblem, InputError
from compress.export.onnx import evaluating
from compress.train.checkpoint import load_checkpoint
from compress.train.losses import Loss, run_frozen, run_named
from compress.train.optimizers import make_optimizer
from compress.train.order import batch_of, epoch_order
from compress.train.plan import TrainPlan
from compress.train.progress import Progress, Watch
from compress.train.randomness import private_randomness, seed_step
from compress.train.record import TrainRecord, make_record
from compress.train.schedule import rate_at
from compress.train.state import State, restore_, save

SCORE_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained and how it is judged.

    fit, held: samples to train on and to choose the best epoch by; score: outputs by name and labels to scores (n,);
    sign: 1 where higher scores are better, else -1; before_epoch: called with the epoch's number before it starts.
    place: what errors name; keep_start: whether the weights it came with may turn out to be the best.
    """

    model: nn.Module
    loss: Loss
    fit: Split
    held: Split
    score: Callable[[dict[str, Array], Array], Array]
    sign: int = 1
    place: str = "training"
    keep_start: bool = True
    before_epoch: Callable[[int], None] = field(default=lambda _epoch: None)


def train(task: Task, plan: TrainPlan, work: Path, watch: Watch) -> TrainRecord:
    """Train `task.model` in place; it ends with the weights of its best epoch; epoch 0 are those it came with.

    Checkpoints lie in `work`; one that is there is continued. Raises InputError when there is nothing to train, when
    data or loss break before the first epoch is through, and OutOfTimeError, after a checkpoint, when the watch says
    so. What breaks later ends training: the best epoch so far is kept and `stopped` says what happened.
    """
    accelerator = _accelerator(plan)
    _check(task, plan)
    with private_randomness():
        seed_step(plan.seed, 0)
        loop = _Loop(task=task, plan=plan, accelerator=accelerator, work=work, watch=watch)
        stopped = loop.run_()
    task.model.load_state_dict(loop.state.best, strict=True)
    task.model.cpu()  # exporting, and whatever the caller does with it, expects it where it came from
    return make_record(loop.state, plan, len(task.fit), stopped)


class OutOfTimeError(CompressError):
    """The budget ended in the middle of training; the checkpoint is there and the same command goes on from it."""


@dataclass(kw_only=True)
class _Loop:
    task: Task
    plan: TrainPlan
    accelerator: Accelerator
    work: Path
    watch: Watch

    def __post_init__(self) -> None:
        self.per_epoch = self.plan.steps_per_epoch(len(self.task.fit))
        self.total = self.plan.epochs * self.per_epoch
        self.optimizer = make_optimizer(self.task.model.parameters(), self.plan)
        self.model, self.optimizer = self.accelerator.prepare(self.task.model, self.optimizer)
        self.state = State()
        self.saved = time.monotonic()

    def run_(self) -> str:
        """Every step that is left. Returns why it ended early, or nothing."""
        self._begin_()
        progress = Progress(total=self.total, epochs=self.plan.epochs, watch=self.watch)
        try:
            while self.state.step < self.total:
                self._stop_when_told()
                self._step_()
                progress.show(self.state)
                if self.state.step % self.per_epoch == 0:
                    self._end_epoch_()
                if time.monotonic() - self.saved >= self.plan.checkpoint_seconds:
                    self._save_()
        except OutOfTimeError:
            raise
        except CompressError as error:
            if not self.state.epochs:
                raise
            return str(error)
        return ""

    def _begin_(self) -> None:
        found = load_checkpoint(self.work)
        if found is not None and restore_(self.state, found, self.task.model, self.optimizer):
            return
        self.state = State()
        self.state.best = _copy(self.task.model)
        self.state.best_score = self._score()

    def _step_(self) -> None:
        epoch, within = divmod(self.state.step, self.per_epoch)
        seed_step(self.plan.seed, self.state.step)
        if within == 0:
            self.task.before_epoch(epoch)
        _train_mode_(self.task.model, frozen=_is_frozen(self.plan, epoch))
        started = time.monotonic()
        order = epoch_order(len(self.task.fit), seed=self.plan.seed, epoch=epoch)
        parts = np.array_split(batch_of(order, within, self.plan.batch_size), self.plan.accumulation)
        loss, waited = 0.0, 0.0
        for part in parts:
            one, seconds = self._backward_(part)
            loss, waited = loss + one / len(parts), waited + seconds
        rate = rate_at(self.state.step, total=self.total, warmup=self.plan.warmup, peak=self.plan.learning_rate)
        self._refuse_non_finite(loss, epoch, rate)
        self._update_(rate)
        self.state.count_(loss, seconds=time.monotonic() - started, waited=waited)

    def _backward_(self, part: "np.ndarray[Any, Any]") -> tuple[float, float]:
        """Gradients of one part of a step. Returns its loss and the seconds its samples took to read."""
        started = time.monotonic()
        inputs, labels = self._read(part)
        waited = time.monotonic() - started
        loss = self.task.loss(run_named(self.model, inputs), inputs, labels)
        self.accelerator.backward(loss)
        return float(loss.detach()), waited

    def _read(self, part: "np.ndarray[Any, Any]") -> tuple[dict[str, Tensor], Tensor]:
        inputs, labels = self.task.fit.read(part)
        device = self.accelerator.device
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)).to(device) for name, values in inputs.items()}
        return tensors, torch.from_numpy(np.ascontiguousarray(labels)).to(device)

    def _update_(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.accelerator.clip_grad_norm_(self.task.model.parameters(), self.plan.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _end_epoch_(self) -> None:
        score = self._score()
        first = not self.state.epochs and not self.task.keep_start
        if first or self.task.sign * (score - self.state.best_score) > 0:
            self.state.best, self.state.best_score = _copy(self.task.model), score
            self.state.best_epoch = len(self.state.epochs) + 1
        self.state.end_epoch_(score, self.per_epoch)

    def _score(self) -> float:
        """Mean score of the held-out samples, in eval mode."""
        found = []
        with evaluating(self.task.model):
            for inputs, labels in self.task.held.batches(SCORE_BATCH):
                tensors = {name: torch.from_numpy(np.ascontiguousarray(v)) for name, v in inputs.items()}
                moved = {name: tensor.to(self.accelerator.device) for name, tensor in tensors.items()}
                outputs = run_frozen(self.task.model, moved)
                found.append(self.task.score({name: out.cpu().numpy() for name, out in outputs.items()}, labels))
        return float(np.concatenate(found).mean())

    def _save_(self) -> None:
        save(self.work, self.state, self.task.model, self.optimizer)
        self.saved = time.monotonic()

    def _stop_when_told(self) -> None:
        if self.watch.stop():
            self._save_()
            fact = f"the budget ended after step {self.state.step} of {self.total}"
            raise OutOfTimeError(self.task.place, fact, "Raise budget.minutes and run the same command to go on")

    def _refuse_non_finite(self, loss: float, epoch: int, rate: float) -> None:
        if not np.isfinite(loss):
            where = f"step {self.state.step + 1} of {self.total} (epoch {epoch + 1}, learning rate {rate:.3g})"
            raise InputError(self.task.place, f"the loss became {loss} at {where}", "Lower learning_rate")


def _accelerator(plan: TrainPlan) -> Accelerator:
    accelerator = Accelerator(gradient_accumulation_steps=plan.accumulation)
    if accelerator.num_processes > 1:
        fact = f"{accelerator.num_processes} processes were started"
        raise EnvironmentProblem("training", fact, "Start one: training over several is not available in this version")
    return accelerator


def _check(task: Task, plan: TrainPlan) -> None:
    if not any(parameter.requires_grad for parameter in task.model.parameters()):
        fact = "the model has no parameter that takes gradients"
        raise InputError(task.place, fact, "Give a model with requires_grad parameters")
    if len(task.fit) < 2 or not len(task.held):
        fact = f"{len(task.fit)} samples to train on, {len(task.held)} to choose by"
        raise InputError(task.place, fact, "Give a larger train split")
    if plan.batch_size % plan.accumulation:
        fact = f"batch_size {plan.batch_size} cannot be computed in {plan.accumulation} equal parts"
        raise InputError(task.place, fact, "Choose a divisor of batch_size")


def _is_frozen(plan: TrainPlan, epoch: int) -> bool:
    return plan.freeze_norm_epoch is not None and epoch >= plan.freeze_norm_epoch


def _train_mode_(model: nn.Module, *, frozen: bool) -> None:
    """Train mode; frozen: batch normalisation keeps and uses its running statistics."""
    model.train()
    for module in model.modules() if frozen else ():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
