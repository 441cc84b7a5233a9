"""Which samples a step sees: a function of seed, epoch and step alone, so that a resumed run sees the same ones."""

import numpy as np
from numpy.typing import NDArray

from compress.data import Split
from compress.errors import InputError

Indices = NDArray[np.int64]
HELD_SHARE = 0.1
MOST_HELD = 2000
FEWEST_HELD = 2


def epoch_order(samples: int, *, seed: int, epoch: int) -> Indices:
    """A permutation (samples,) of its own for every epoch."""
    return np.random.default_rng([seed, epoch]).permutation(samples)


def batch_of(order: Indices, step_in_epoch: int, size: int) -> Indices:
    """The positions that one step reads, (size,) or all of them where there are fewer."""
    return order[step_in_epoch * size : (step_in_epoch + 1) * size]


def hold_out(train: Split, *, seed: int) -> tuple[Split, Split]:
    """The split to fit on and a tenth of it, at most 2000 samples, to choose the best epoch by.

    Raises InputError when there are too few samples for both.
    """
    held = min(MOST_HELD, int(HELD_SHARE * len(train)))
    if held < FEWEST_HELD:
        fact = f"split 'train' holds {len(train)} samples, a tenth of which chooses the best epoch"
        raise InputError("data.ref", fact, f"Give at least {int(FEWEST_HELD / HELD_SHARE)}")
    order = np.random.default_rng([seed, len(train)]).permutation(len(train))
    return _part(train, "train", np.sort(order[held:])), _part(train, "train-held", np.sort(order[:held]))


def _part(split: Split, name: str, chosen: Indices) -> Split:
    return Split(name, split.source, split.indices[chosen], split.origin or split.name)
