"""Randomness as a function of the step: what a step draws does not depend on the steps before it in this process."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def private_randomness() -> Iterator[None]:
    """Whatever is drawn or seeded inside leaves the caller's generators as they were."""
    python, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy_state)


def seed_step(seed: int, step: int) -> None:
    """Seed every generator that a dataset, dropout or augmentation of the user's may draw from."""
    value = int(np.random.SeedSequence([seed, step]).generate_state(1)[0])
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
