"""Metrics: one finite score per sample, and labels that the model can hit."""

from typing import Any

import numpy as np
import pytest
import torch

from compress.errors import InputError
from compress.metrics import check_labels, top1, user_metric

LABELS = np.array([0, 2, 1, 2, 2])


def test_top1_scores_the_largest_logit():
    logits = np.eye(3)[[0, 2, 2, 2, 0]]
    metric = top1(LABELS)
    assert metric.score({"logits": logits}, LABELS).tolist() == [1, 1, 0, 1, 0]
    assert (metric.direction, metric.sign, metric.chance) == ("higher", 1, 0.6)


BAD_LABELS: list[tuple[np.ndarray, str]] = [
    (np.array([0, 1, -1]), "label -1 of sample 2 is outside [0, 2], the 3 outputs of the model"),
    (np.array([0, 3, 1]), "label 3 of sample 1 is outside [0, 2]"),
    (np.array([1, 2, 3]), "label 3 of sample 2 is outside"),
    (np.array([0.0, 1.0, 2.0]), "labels are float64[3]"),
    (np.array([True, False, True]), "labels are bool[3]"),
    (np.array(["a", "b", "c"]), "labels are <U1[3]"),
    (np.eye(3, dtype=int), "labels are int64[3, 3]"),
    (np.array([1, 1, 1]), "every label is 1"),
    (np.array([0]), "every label is 0"),
]


@pytest.mark.parametrize(("labels", "message"), BAD_LABELS, ids=[message for _, message in BAD_LABELS])
def test_labels_the_model_cannot_hit_are_refused(labels: np.ndarray, message: str):
    with pytest.raises(InputError) as caught:
        check_labels(labels, 3, "confirm")
    assert str(caught.value).startswith(f"split 'confirm': {message}")
    assert caught.value.remedy


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_whole_labels_of_any_width_pass(dtype: type):
    check_labels(LABELS.astype(dtype), 3, "select")


def score(function: Any, outputs: dict[str, np.ndarray]) -> np.ndarray:
    return user_metric("f1", function, "lower", None).score(outputs, LABELS)


def test_a_users_metric_gets_the_one_output_or_all_by_name():
    one, two = np.ones((5, 2)), np.zeros((5, 2))
    assert score(lambda outputs, labels: outputs[:, 0], {"a": one}).tolist() == [1] * 5
    assert score(lambda outputs, labels: outputs["b"][:, 0], {"a": one, "b": two}).tolist() == [0] * 5
    assert user_metric("f1", max, "lower", None).sign == -1


@pytest.mark.parametrize("convert", [list, tuple, torch.tensor, np.float32])
def test_scores_may_come_in_any_numeric_form(convert: Any):
    found = score(lambda outputs, labels: convert([0.5, 1, 0, 1, 1]), {"a": np.ones((5, 2))})
    assert found.dtype == np.float64
    assert found.tolist() == [0.5, 1, 0, 1, 1]


def missing_key(outputs: Any, labels: Any) -> Any:
    return {}["logits"]


def fail(outputs: Any, labels: Any) -> Any:
    raise ValueError("shapes differ\nat length")


BAD_METRICS: list[tuple[Any, str]] = [
    (lambda outputs, labels: 0.9, "returned shape [] for 5 samples"),
    (lambda outputs, labels: outputs, "returned shape [5, 2] for 5 samples"),
    (lambda outputs, labels: [1.0], "returned shape [1] for 5 samples"),
    (lambda outputs, labels: [], "returned shape [0]"),
    (lambda outputs, labels: np.array([1, 1, np.nan, 1, 1]), "returned NaN or infinity"),
    (lambda outputs, labels: np.array([1, 1, np.inf, 1, 1]), "returned NaN or infinity"),
    (lambda outputs, labels: None, "returned"),
    (lambda outputs, labels: ["good"] * 5, "raised ValueError: could not convert"),
    (lambda outputs, labels: [[1], [1, 2], 1, 1, 1], "raised ValueError"),
    (lambda outputs, labels: torch.ones(5, requires_grad=True), "raised RuntimeError"),
    (lambda outputs: outputs, "raised TypeError"),
    (fail, "raised ValueError: shapes differ at length"),
    (missing_key, "raised KeyError: 'logits'"),
]


@pytest.mark.parametrize(("function", "message"), BAD_METRICS, ids=[message for _, message in BAD_METRICS])
def test_a_users_metric_that_fails_is_named(function: Any, message: str):
    with pytest.raises(InputError) as caught:
        score(function, {"a": np.ones((5, 2))})
    assert str(caught.value).startswith(f"metric 'f1': {message}")
    assert caught.value.remedy


def test_an_error_that_the_metric_words_itself_passes_unchanged():
    def careful(outputs: Any, labels: Any) -> Any:
        raise InputError("metric f1", "wants probabilities", "Apply a softmax")

    with pytest.raises(InputError, match="metric f1: wants probabilities"):
        score(careful, {"a": np.ones((5, 2))})


def test_an_interrupt_in_a_metric_passes_through():
    def interrupted(outputs: Any, labels: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(interrupted, {"a": np.ones((5, 2))})
