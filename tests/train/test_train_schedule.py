"""Learning rates, orders of samples and optimizers: pure functions of plan and step."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compress.data import Split
from compress.errors import InputError
from compress.train.optimizers import OPTIMIZERS, make_optimizer
from compress.train.order import batch_of, epoch_order, hold_out
from compress.train.plan import OptimizerName, TrainPlan
from compress.train.schedule import rate_at


def test_the_rate_rises_to_the_peak_and_falls_along_a_cosine():
    rates = [rate_at(step, total=100, warmup=0.1, peak=2.0) for step in range(100)]
    assert rates[:10] == pytest.approx([2.0 * (step + 1) / 11 for step in range(10)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(1 + math.cos(math.pi * 89 / 90))


@given(total=st.integers(1, 500), warmup=st.floats(0, 0.9), peak=st.floats(1e-6, 10))
def test_no_rate_is_zero_or_above_the_peak(total: int, warmup: float, peak: float):
    rates = [rate_at(step, total=total, warmup=warmup, peak=peak) for step in range(total)]
    assert all(0 < rate <= peak for rate in rates)
    assert max(rates) == peak


@given(samples=st.integers(1, 300), seed=st.integers(0, 2**32 - 1), size=st.integers(1, 64))
def test_an_epoch_shows_every_sample_at_most_once_and_whole_batches_only(samples: int, seed: int, size: int):
    order = epoch_order(samples, seed=seed, epoch=3)
    steps = TrainPlan(epochs=1, batch_size=size, learning_rate=1).steps_per_epoch(samples)
    seen = np.concatenate([batch_of(order, step, size) for step in range(steps)])
    assert len(set(seen.tolist())) == len(seen)
    assert set(seen.tolist()) <= set(range(samples))
    assert len(seen) == (samples if samples < size else samples // size * size)


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else():
    first = epoch_order(50, seed=1, epoch=2)
    np.random.seed(7)
    assert np.array_equal(first, epoch_order(50, seed=1, epoch=2))
    assert not np.array_equal(first, epoch_order(50, seed=1, epoch=3))
    assert not np.array_equal(first, epoch_order(50, seed=2, epoch=2))


@given(samples=st.integers(20, 400), seed=st.integers(0, 99))
def test_no_sample_is_both_learned_from_and_held_out(samples: int, seed: int):
    whole = Split("train", None, np.arange(1000, 1000 + samples))
    fit, held = hold_out(whole, seed=seed)
    assert sorted([*fit.indices, *held.indices]) == list(whole.indices)
    assert len(held) == samples // 10
    assert fit.origin == held.origin == "train"


def test_too_few_samples_to_hold_any_out_are_refused():
    with pytest.raises(InputError, match=r"split 'train' holds 19 samples.*Give at least 20"):
        hold_out(Split("train", None, np.arange(19)), seed=0)


def test_the_table_of_optimizers_holds_every_name_of_the_plan():
    assert set(OPTIMIZERS) == set(OptimizerName.__args__)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_vectors_do_not_decay(name: OptimizerName):
    layer = torch.nn.Linear(2, 2)
    frozen = torch.nn.Parameter(torch.zeros(2, 2), requires_grad=False)
    plan = TrainPlan(epochs=1, learning_rate=0.5, optimizer=name, weight_decay=0.1)
    groups = make_optimizer([*layer.parameters(), frozen], plan).param_groups
    assert [(group["weight_decay"], len(group["params"]), group["lr"]) for group in groups] == [
        (0.1, 1, 0.5),
        (0, 1, 0.5),
    ]
    assert name != "sgd" or groups[0]["momentum"] == 0.9
