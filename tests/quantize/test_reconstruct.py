"""Learned codes: never worse than rounding to nearest, as good as trying them all, and inside the bits there are."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.quantize.reconstruct import Problem, descend, gptq, reconstruct


def problem(seed: int, *, groups: int = 1, outputs: int = 3, inputs: int = 6, low: int = -8, high: int = 7) -> Problem:
    rng = torch.Generator().manual_seed(seed)
    mix = torch.randn(groups, inputs, inputs, generator=rng)
    x = torch.randn(groups, 200, inputs, generator=rng) @ mix
    return Problem(
        target=torch.randn(groups, outputs, inputs, generator=rng) * 3,
        scale=torch.rand(groups, outputs, 1, generator=rng) + 0.1,
        gram=x.transpose(1, 2) @ x / 200,
        low=low,
        high=high,
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
def test_no_row_is_worse_than_rounding_to_nearest(seed, groups, outputs, inputs):
    given_ = problem(seed, groups=groups, outputs=outputs, inputs=inputs)
    codes = reconstruct(given_)
    nearest = given_.loss(given_.nearest())
    assert bool((given_.loss(codes) <= nearest * (1 + 1e-4) + 1e-9).all())
    assert bool((codes == codes.round()).all())
    assert given_.low <= float(codes.min())
    assert float(codes.max()) <= given_.high


def test_it_comes_close_to_the_best_of_all_roundings():
    left = []
    for seed in range(10):
        given_ = problem(seed, outputs=1)
        floor = given_.target.floor()
        best = min(
            float(given_.loss((floor + torch.tensor(up)).clamp(given_.low, given_.high)).sum())
            for up in itertools.product((0.0, 1.0), repeat=6)
        )
        left.append((float(given_.loss(reconstruct(given_)).sum()) - best) / float(given_.loss(given_.nearest()).sum()))
    # Codes may leave floor and ceiling, so it can even be better.
    assert np.mean(left) < 0.1


def test_uncorrelated_inputs_leave_nothing_to_gain():
    given_ = problem(0)
    plain = Problem(target=given_.target, scale=given_.scale, gram=torch.eye(6)[None], low=-8, high=7)
    assert bool((reconstruct(plain) == plain.nearest()).all())


def test_descent_only_goes_down_and_gptq_beats_nearest_on_correlated_inputs():
    given_ = problem(1, outputs=32, inputs=24)
    nearest = given_.nearest()
    losses = [float(given_.loss(descend(given_, nearest, sweeps)).sum()) for sweeps in (0, 1, 2, 4)]
    assert losses == sorted(losses, reverse=True)
    assert float(given_.loss(gptq(given_)).sum()) < 0.7 * float(given_.loss(nearest).sum())


def test_inputs_that_are_always_zero_do_no_harm():
    given_ = problem(2)
    gram = given_.gram.clone()
    gram[:, 2], gram[:, :, 2] = 0, 0
    codes = reconstruct(Problem(target=given_.target, scale=given_.scale, gram=gram, low=-8, high=7))
    assert bool(torch.isfinite(codes).all())
    assert codes.shape == given_.target.shape
    assert pytest.approx(0) == float((codes - codes.round()).abs().max())
