"""The loop: it learns, keeps its best, survives what breaks, and leaves no trace outside."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training import blobs, distilled, net, split, task

from compress.data import Split
from compress.errors import InputError
from compress.train.loop import OutOfTimeError, train
from compress.train.plan import TrainPlan
from compress.train.progress import Watch

PLAN = TrainPlan(epochs=3, batch_size=32, learning_rate=0.02, checkpoint_seconds=1e9)


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_training_learns_and_records_what_it_did(optimizer: Any, tmp_path: Path):
    model = net()
    record = train(task(model), replace(PLAN, optimizer=optimizer, epochs=6), tmp_path, Watch())
    assert record.best_score > 0.85
    assert record.epochs[-1]["loss"] < record.epochs[0]["loss"]
    assert [epoch["epoch"] for epoch in record.epochs] == [1, 2, 3, 4, 5, 6]
    assert record.steps == len(record.losses) == len(record.rates) == 6 * (240 // 32)
    assert max(record.rates) == PLAN.learning_rate
    assert record.step_ms > 0
    assert 0 <= record.wait_share <= 1
    assert record.samples_per_s == pytest.approx(32e3 / record.step_ms)
    assert record.peak_memory_bytes > 1e6


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(tmp_path: Path):
    found = []
    for number, seed in enumerate((0, 0, 1)):
        model = net(dropout=0.5)
        train(task(model), replace(PLAN, seed=seed), tmp_path / str(number), Watch())
        found.append(state_of(model))
    assert equal(found[0], found[1])
    assert not equal(found[0], found[2])


def test_the_callers_random_state_is_left_alone(tmp_path: Path):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), float(torch.rand(()))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    model = net()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    train(task(model), replace(PLAN, epochs=1), tmp_path, Watch())
    assert (random.random(), np.random.rand(), float(torch.rand(()))) == expected


def test_a_step_in_parts_is_the_whole_step(tmp_path: Path):
    found = []
    for parts in (1, 4):
        model = net(norm=False).double()
        fit = split("train", 240, 1)
        fit.source[0]["input"] = fit.source[0]["input"].astype(np.float64)
        held = split("held", 60, 2)
        held.source[0]["input"] = held.source[0]["input"].astype(np.float64)
        plan = replace(PLAN, accumulation=parts, optimizer="sgd")
        train(task(model, fit=fit, held=held), plan, tmp_path / str(parts), Watch())
        found.append(state_of(model))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-9, atol=1e-12)


def test_gradients_are_clipped_to_the_plans_norm(tmp_path: Path):
    """With plain SGD, no momentum and one step, the weights move by at most rate x norm."""
    model = net(norm=False)
    before = state_of(model)
    steep = task(model, lambda outputs, _inputs, _labels: 1e4 * outputs["output"].square().mean())
    plan = TrainPlan(epochs=1, batch_size=240, learning_rate=0.1, optimizer="sgd", momentum=0, clip_norm=0.5, warmup=0)
    steep = replace(steep, sign=-1, score=lambda outputs, _labels: np.square(outputs["output"]).mean(axis=1))
    train(steep, plan, tmp_path, Watch())
    moved = torch.sqrt(sum(((model.state_dict()[name] - before[name]) ** 2).sum() for name in before))
    assert float(moved) == pytest.approx(0.05, rel=1e-4)


def test_frozen_norms_keep_their_statistics(tmp_path: Path):
    model = net()
    before = state_of(model)
    train(task(model), replace(PLAN, freeze_norm_epoch=0), tmp_path, Watch())
    after = state_of(model)
    assert torch.equal(before["1.running_mean"], after["1.running_mean"])
    assert torch.equal(before["1.num_batches_tracked"], after["1.num_batches_tracked"])
    assert not torch.equal(before["1.weight"], after["1.weight"])


def test_norms_are_frozen_from_the_plans_epoch_on(tmp_path: Path):
    model, seen = net(), []
    watched = task(model, before_epoch=lambda epoch: seen.append(int(model.state_dict()["1.num_batches_tracked"])))
    train(watched, replace(PLAN, epochs=4, freeze_norm_epoch=2), tmp_path, Watch())
    assert seen == [0, 7, 14, 14]


def test_training_that_makes_it_worse_ends_with_the_weights_it_came_with(tmp_path: Path):
    model = net()
    train(task(model), replace(PLAN, epochs=6), tmp_path / "first", Watch())
    before = state_of(model)
    spoilt = task(model, lambda outputs, _inputs, labels: -nn.functional.cross_entropy(outputs["output"], labels))
    record = train(spoilt, PLAN, tmp_path / "second", Watch())
    assert (record.best_epoch, record.stopped) == (0, "")
    assert equal(before, state_of(model))


def test_the_best_epoch_is_kept_where_lower_is_better(tmp_path: Path):
    model = net()
    lower = replace(
        task(model), sign=-1, score=lambda outputs, labels: -(outputs["output"].argmax(1) == labels).astype(float)
    )
    record = train(lower, replace(PLAN, epochs=6), tmp_path, Watch())
    assert record.best_score == min(epoch["score"] for epoch in record.epochs)
    assert record.epochs[record.best_epoch - 1]["score"] == record.best_score < -0.85


def test_distillation_brings_a_student_to_its_teacher(tmp_path: Path):
    teacher = net(1)
    train(task(teacher), replace(PLAN, epochs=6), tmp_path / "teacher", Watch())
    before, student = state_of(teacher), net(2)
    record = train(task(student, distilled(teacher)), replace(PLAN, epochs=8), tmp_path / "student", Watch())
    images = torch.from_numpy(blobs(200, 5)[0])
    agreement = (student.eval()(images).argmax(1) == teacher.eval()(images).argmax(1)).float().mean()
    assert agreement > 0.9
    assert record.losses[-1] < record.losses[0] / 3
    assert equal(before, state_of(teacher))


def nan_at(step: int) -> Any:
    calls = iter(range(10_000))

    def loss(outputs: dict[str, torch.Tensor], _inputs: Any, labels: torch.Tensor) -> torch.Tensor:
        found = nn.functional.cross_entropy(outputs["output"], labels)
        return found * float("nan") if next(calls) == step else found

    return loss


def test_a_loss_that_is_no_number_names_step_epoch_and_rate(tmp_path: Path):
    with pytest.raises(
        InputError, match=r"stages.qat: the loss became nan at step 4 of 21 \(epoch 1, learning rate 0.0"
    ):
        train(task(net(), nan_at(3)), PLAN, tmp_path, Watch())


def test_a_loss_that_breaks_later_ends_training_with_the_best_so_far(tmp_path: Path):
    model = net()
    record = train(task(model, nan_at(16)), PLAN, tmp_path, Watch())
    assert "nan at step 17 of 21 (epoch 3" in record.stopped
    assert record.best_epoch in (1, 2)
    assert len(record.epochs) == 2
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


class Breaks:
    """A dataset that raises at one sample."""

    def __init__(self, at: int) -> None:
        self.inputs, self.labels = blobs(64)
        self.at = at

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if index == self.at:
            raise OSError("disk gone")
        return self.inputs[index], int(self.labels[index])


def test_a_loader_that_raises_names_the_sample(tmp_path: Path):
    fit = Split("train", Breaks(17), np.arange(64))
    with pytest.raises(InputError, match="split 'train', sample 17: reading it raised OSError: disk gone"):
        train(task(net(), fit=fit), PLAN, tmp_path, Watch())


def test_a_model_without_anything_to_train_is_refused(tmp_path: Path):
    model = net().requires_grad_(False)
    with pytest.raises(InputError, match="no parameter that takes gradients"):
        train(task(model), PLAN, tmp_path, Watch())


def test_parts_that_are_not_equal_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="batch_size 32 cannot be computed in 5 equal parts"):
        train(task(net()), replace(PLAN, accumulation=5), tmp_path, Watch())


def test_a_single_sample_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="1 samples to train on"):
        train(task(net(), fit=split("train", 1, 1)), PLAN, tmp_path, Watch())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_the_budgets_end_leaves_a_checkpoint_that_is_continued_to_the_same_bits(optimizer: Any, tmp_path: Path):
    whole, cut, plan = net(dropout=0.3), net(dropout=0.3), replace(PLAN, optimizer=optimizer)
    train(task(whole), plan, tmp_path / "whole", Watch())
    answers = iter([False] * 10 + [True])
    with pytest.raises(OutOfTimeError, match=r"budget ended after step 10 of 21.*Raise budget.minutes"):
        train(task(cut), plan, tmp_path / "cut", Watch(stop=lambda: next(answers)))
    record = train(task(cut), plan, tmp_path / "cut", Watch())
    assert equal(state_of(whole), state_of(cut))
    assert record.steps == 21
    assert len(record.epochs) == 3


def test_progress_tells_epoch_loss_and_time_left(tmp_path: Path):
    told: list[tuple[int, int, str]] = []
    watch = Watch(update=lambda done, total, text: told.append((done, total, text)), text="training the control")
    train(task(net()), PLAN, tmp_path, watch)
    assert [done for done, _, _ in told] == list(range(1, 22))
    assert {total for _, total, _ in told} == {21}
    assert told[-1][2].startswith("training the control: epoch 3/3, loss 0.")
    assert told[-1][2].endswith("0 s left, steps")
