"""Shapes as a user writes them, and inputs that a model can take."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from compress.errors import InputError
from compress.stages.analyze_module import _table_rows
from compress.stages.sample_inputs import InputSpec, made_up, named, parse_shapes, resized

IDS = InputSpec(shape=(2, 50), dtype="int64")


@given(st.integers(1, 10**6), st.sampled_from(["int64", "int32", "int8", "uint8"]))
def test_token_numbers_are_rows_of_the_table(rows, dtype):
    values = made_up({"ids": InputSpec(shape=(4, 9), dtype=dtype)}, rows)["ids"]
    assert values.dtype == dtype
    assert values.min() >= 0
    assert values.max() < rows


def test_tokens_differ_masks_are_ones_and_noise_is_normal():
    specs = {"ids": IDS, "attention_mask": IDS, "flags": InputSpec(shape=(3,), dtype="bool")}
    found = made_up({**specs, "x": InputSpec(shape=(4000,))}, 100)
    assert len(np.unique(found["ids"])) > 10
    assert found["attention_mask"].all()
    assert found["flags"].all()
    assert found["x"].dtype == np.float32
    assert abs(found["x"].mean()) < 0.1


def test_without_a_table_integers_are_zero():
    assert not made_up({"ids": IDS}, None)["ids"].any()


def test_the_smallest_table_limits_the_tokens():
    assert _table_rows(nn.Sequential(nn.Embedding(30, 4), nn.EmbeddingBag(7, 4), nn.Linear(2, 2))) == 7
    assert _table_rows(nn.Linear(2, 2)) is None


@given(st.permutations(["a", "b", "c", "d"]), st.integers(0, 4))
def test_no_shape_is_lost_or_given_twice(order, count):
    shapes = [(name if place < count else None, InputSpec(shape=(place + 1,))) for place, name in enumerate(order)]
    found = named(shapes, ["a", "b", "c", "d"], "net")
    assert list(found) == ["a", "b", "c", "d"]
    assert sorted(spec.shape for spec in found.values()) == [(1,), (2,), (3,), (4,)]
    assert all(found[name].shape == spec.shape for name, spec in shapes if name is not None)


def test_a_shape_too_many_is_refused():
    with pytest.raises(InputError, match=r"2 shapes for 1 inputs \(x\)"):
        named([(None, IDS), (None, IDS)], ["x"], "net")


def test_batch_is_for_all_inputs_and_sequence_for_rows_of_tokens():
    specs = resized({"ids": IDS, "x": InputSpec(shape=(2, 50))}, batch=8, seq=3)
    assert {name: spec.shape for name, spec in specs.items()} == {"ids": (8, 3), "x": (8, 50)}


@pytest.mark.parametrize("text", ["", "1,,2", "0,3", "-1,3", "=1,3", "a=", "1.5", "x=1,2:", "x=1:float"])
def test_what_is_no_shape_has_an_example(text):
    with pytest.raises(InputError, match="--input-shape"):
        parse_shapes([text])
