"""Metrics: one score per sample, whose mean is the metric; a direction; a chance level."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from compress.data import Array
from compress.errors import CompressError, InputError

Scores = NDArray[np.float64]
Outputs = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """`score` maps outputs by name, each (n, ...), and labels (n, ...) to scores (n,)."""

    name: str
    direction: Literal["higher", "lower"]
    chance: float | None
    score: Callable[[Outputs, Array], Scores]

    @property
    def sign(self) -> int:
        return 1 if self.direction == "higher" else -1


def top1(labels: Array) -> Metric:
    """Share of samples whose largest logit stands at the label. labels: (n,) of the judged split, for the chance."""
    most_common = int(np.unique(labels, return_counts=True)[1].max())
    return Metric(name="top1", direction="higher", chance=most_common / len(labels), score=_score_top1)


def user_metric(
    name: str, function: Callable[..., object], direction: Literal["higher", "lower"], chance: float | None
) -> Metric:
    """A metric of the user's own. `function(outputs, labels)` gets the one output, or all of them by name."""

    def score(outputs: Outputs, labels: Array) -> Scores:
        given = next(iter(outputs.values())) if len(outputs) == 1 else outputs
        values = _scores_of(name, function, given, labels)
        if values.shape != (len(labels),):
            fact = f"returned shape {list(values.shape)} for {len(labels)} samples"
            raise InputError(f"metric '{name}'", fact, "Return one score per sample")
        if not np.isfinite(values).all():
            raise InputError(f"metric '{name}'", "returned NaN or infinity", "Return finite scores")
        return values

    return Metric(name=name, direction=direction, chance=chance, score=score)


def _scores_of(name: str, function: Callable[..., object], given: object, labels: Array) -> Scores:
    """What the user's function returns, as numbers; whatever it raises becomes one line that names it."""
    try:
        return np.asarray(function(given, labels), dtype=np.float64)
    except CompressError:
        raise
    except Exception as error:  # the user's code, so any class
        message = " ".join(str(error).split())[:200]
        fact = f"raised {type(error).__name__}: {message}"
        raise InputError(f"metric '{name}'", fact, "Return one finite number per sample") from error


def check_labels(labels: Array, classes: int, split: str) -> None:
    """Raise InputError unless labels are whole numbers in [0, classes) and there is more than one of them."""
    place = f"split '{split}'"
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        fact = f"labels are {labels.dtype}{list(labels.shape)}"
        raise InputError(place, fact, "top1 wants one whole number per sample; give another metric for other tasks")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        found = f"label {int(labels[wrong[0]])} of sample {int(wrong[0])}"
        fact = f"{found} is outside [0, {classes - 1}], the {classes} outputs of the model"
        raise InputError(place, fact, "Number the classes from 0, or give a model with more outputs")
    if len(np.unique(labels)) < 2:
        raise InputError(
            place, f"every label is {int(labels[0])}", "An accuracy says nothing with one class; mix the classes"
        )


def _score_top1(outputs: Outputs, labels: Array) -> Scores:
    logits = next(iter(outputs.values()))
    return (logits.argmax(axis=-1) == labels).astype(np.float64)
