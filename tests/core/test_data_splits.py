"""Splits: derived by the seed, checked sample by sample, every fault with its place."""

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from compress.data import Split, Splits, make_splits
from compress.errors import InputError

PLACE = "data.ref mydata:load"


def pair(n: int, seed: int = 0, shape: tuple[int, ...] = (3, 4, 4)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, seed])
    return rng.random((n, *shape), dtype=np.float32), rng.integers(0, 3, n)


def given(**changes: object) -> dict[str, Any]:
    return {"calibration": pair(20, 1), "select": pair(30, 2), "confirm": pair(30, 3)} | changes


def make(raw: object, seed: int = 0, samples: int = 8, refuse: bool = True) -> Splits:
    return make_splits(raw, place=PLACE, calibration_samples=samples, seed=seed, refuse_leaks=refuse)


def fault(raw: object, samples: int = 8) -> str:
    """The message that the raw splits are refused with."""
    with pytest.raises(InputError) as caught:
        make(raw, samples=samples)
    assert caught.value.exit_code == 2
    assert caught.value.remedy
    return str(caught.value)


class Samples:
    """A torch-style dataset over a list of items; an exception in the list is raised."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.items[index], BaseException):
            raise self.items[index]
        return self.items[index]


def items(n: int, seed: int = 0) -> list[Any]:
    inputs, labels = pair(n, seed)
    return list(zip(inputs, labels.tolist(), strict=True))


def test_splits_left_out_are_drawn_by_the_seed_and_share_nothing():
    raw = {"train": pair(100, 1), "test": pair(60, 2)}
    one, same, other = make(raw, 1), make(raw, 1), make(raw, 2)
    assert set(one.by_name) == {"train", "calibration", "select", "confirm"}
    for name, split in one.by_name.items():
        assert (split.indices == same[name].indices).all()
    assert one.digests == same.digests
    assert one.digests["calibration"] != other.digests["calibration"]
    assert one.digests["select"] != other.digests["select"]
    assert not set(one["train"].indices) & set(one["calibration"].indices)
    assert sorted([*one["select"].indices, *one["confirm"].indices]) == list(range(60))
    assert len(one["calibration"]) == 8


def test_splits_that_are_given_stay_as_they_are():
    splits = make(given())
    inputs, labels = splits["select"].read(np.arange(30))
    assert (inputs["input"] == given()["select"][0]).all()
    assert (labels == given()["select"][1]).all()


def test_batches_cover_every_sample_once_in_order():
    split = make(given())["select"]
    labels = [batch for _, batch in split.batches(7)]
    assert list(map(len, labels)) == [7, 7, 7, 7, 2]
    assert (np.concatenate(labels) == given()["select"][1]).all()
    assert sum(len(batch) for _, batch in split.batches(7, samples=9)) == 9


@pytest.mark.parametrize("form", ["tensors", "lists", "dataset", "list of pairs", "by name"])
def test_every_form_of_the_same_samples_reads_alike(form: str):
    def convert(arrays: tuple[np.ndarray, np.ndarray]) -> Any:
        inputs, labels = arrays
        pairs = list(zip(inputs, labels, strict=True))
        return {
            "tensors": (torch.from_numpy(inputs).requires_grad_(), torch.from_numpy(labels)),
            "lists": [inputs, labels.tolist()],
            "dataset": Samples([(torch.from_numpy(image), int(label)) for image, label in pairs]),
            "list of pairs": pairs,
            "by name": ({"input": inputs}, labels),
        }[form]

    expected = make(given())
    found = make({name: convert(arrays) for name, arrays in given().items()})
    assert found.digests == expected.digests


def test_inputs_by_name_are_read_by_name():
    def named(n: int, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        return {"ids": rng.integers(0, 10**6, (n, 5)), "mask": np.ones((n, 5), np.float32)}, np.arange(n) % 2

    splits = make({"calibration": named(9, 1), "select": named(9, 2), "confirm": named(9, 3)})
    inputs, _ = splits["select"].read(np.array([0, 2]))
    assert {name: values.shape for name, values in inputs.items()} == {"ids": (2, 5), "mask": (2, 5)}


LEAKS = [
    ("train", "select"), ("train", "confirm"), ("calibration", "select"), ("calibration", "confirm"),
    ("select", "confirm"), ("train", "calibration"),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), LEAKS)
@pytest.mark.parametrize("labels_too", [True, False])
def test_a_sample_in_two_splits_is_a_leak_whatever_its_label(left: str, right: str, labels_too: bool):
    raw = given(train=pair(20, 9))
    inputs, labels = (values.copy() for values in raw[right])
    inputs[5] = raw[left][0][3]
    labels[5] = raw[left][1][3] + (0 if labels_too else 1)
    raw[right] = (inputs, labels)
    message = fault(raw)
    assert f"1 samples of '{right}' also stand in '{left}' (sample 5)" in message
    assert "data.leaks" in message
    assert len(make(raw, refuse=False).leaks) == 1


def test_splits_without_a_common_sample_have_no_leaks():
    assert make(given(train=pair(20, 9))).leaks == []


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
@pytest.mark.parametrize("name", ["calibration", "select", "confirm"])
def test_a_value_that_is_no_number_is_named_by_split_and_sample(value: float, word: str, name: str):
    raw = given()
    raw[name][0][6, 1, 2, 3] = value
    assert f"{PLACE}: split '{name}', sample 6, input: 1 {word}" in fault(raw)


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_sample_of_a_drawn_split_is_named_as_the_user_knows_it(name: str):
    raw = {"train": pair(40, 1), "test": pair(40, 2)}
    raw[name][0][33] = np.nan
    assert f"split '{name}', sample 33, input: 48 NaN" in fault(raw, samples=20)


def test_nan_in_a_later_batch_and_in_labels_is_found():
    inputs, labels = pair(300, 2)
    inputs[290, 0, 0, 0] = np.nan
    assert "split 'select', sample 290" in fault(given(select=(inputs, labels)))
    soft = np.zeros(30)
    soft[4] = np.nan
    assert "split 'select', sample 4, labels: 1 NaN" in fault(given(select=(pair(30, 2)[0], soft)))


Named = namedtuple("Named", "x y extra")


def generator() -> Iterator[tuple[np.ndarray, int]]:
    yield from items(3)


FAULTS: list[tuple[object, str]] = [
    ((np.zeros((0, 3)), np.zeros(0, int)), "split 'select' is empty"),
    (Samples([]), "split 'select' is empty"),
    ([], "split 'select' is empty"),
    ((pair(5)[0], np.zeros(4, int)), "different lengths (input 5, labels 4)"),
    (({"labels": np.zeros((4, 2))}, np.zeros(5, int)), "different lengths (labels 4, labels 5)"),
    (({}, np.zeros(5, int)), "has no inputs"),
    ((np.array([{}, {}], dtype=object), np.zeros(2, int)), "Python objects instead of numbers"),
    ((np.array(["a", "b"]), np.zeros(2, int)), "input: <U1 instead of numbers"),
    ((np.zeros((2, 3), complex), np.zeros(2, int)), "complex128 instead of numbers"),
    ((np.zeros((2, 0), np.float32), np.zeros(2, int)), "samples of shape [0] are empty"),
    (([[1.0], [1.0, 2.0]], [0, 1]), "split 'select', input: no array can be made of it"),
    ((pair(5)[0], None), "split 'select', labels: NoneType instead of an array"),
    ((None, pair(5)[1]), "split 'select', input: NoneType instead of an array"),
    ((pair(5)[0], 3), "split 'select', labels: int instead of an array"),
    ((pair(5)[0], np.array(3)), "labels: ndarray instead of an array"),
    ((pair(5)[0], [None] * 5), "labels: Python objects"),
    ((torch.zeros((5, 2), dtype=torch.bfloat16), np.zeros(5, int)), "no array can be made of it (TypeError: "),
    ((torch.zeros((5, 2)).to_sparse(), np.zeros(5, int)), "no array can be made of it (TypeError: "),
    ("images/", "split 'select' is str"),
    (b"images/", "split 'select' is bytes"),
    (None, "split 'select' is NoneType"),
    ({"x": pair(5)[0]}, "split 'select' is dict"),
    (pair(5)[0], "split 'select' is ndarray"),
    (torch.zeros(5, 3), "split 'select' is Tensor"),
    ((*pair(5), "extra"), "split 'select' is tuple of 3"),
    ((pair(5)[0],), "split 'select' is tuple of 1"),
    (generator(), "split 'select' is generator"),
    (Samples([np.zeros(3), np.zeros(3)]), "split 'select', sample 0: it is ndarray"),
    (Samples([{"image": 1, "label": 2}]), "split 'select', sample 0: it is dict"),
    (Samples([*items(3), (1, 2, 3)]), "split 'select', sample 3: it is tuple of 3"),
    (Samples([Named(1, 2, 3)]), "sample 0: it is Named of 3"),
    (Samples([*items(3), ValueError("bad jpeg\nmore")]), "sample 3: reading it raised ValueError: bad jpeg"),
    (Samples([*items(3), OSError(2, "No such file")]), "sample 3: reading it raised FileNotFoundError"),
    (Samples([*items(3), AssertionError()]), "sample 3: reading it raised AssertionError."),
    (Samples([(np.zeros((3, 4, 4)), 0), (np.zeros((3, 5, 5)), 1)]), "samples 0 to 1 cannot be stacked"),
    (Samples([({"a": np.zeros(2)}, 0), ({"b": np.zeros(2)}, 1)]), "samples 0 to 1 cannot be stacked (KeyError"),
    (Samples([(None, 0)]), "Python objects instead of numbers"),
    (Samples([(np.zeros(3), None)]), "labels: Python objects"),
    (Samples([(torch.zeros(3, dtype=torch.bfloat16), 0)]), "cannot be stacked (TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_split_that_cannot_be_used_says_why(value: object, message: str):
    assert message in fault(given(select=value))


def test_samples_that_change_shape_between_batches_are_found():
    later = [(np.zeros((3, 5, 5), np.float32) + i, i % 3) for i in range(10)]
    message = fault(given(select=Samples([*items(256, 2), *later])))
    assert "split 'select', sample 256 has input float32[3, 5, 5]" in message
    odd_labels = [(image + 9, [label, label]) for image, label in items(10, 8)]
    assert "sample 256 has" in fault(given(select=Samples([*items(256, 2), *odd_labels])))


def test_a_dataset_that_cannot_count_itself_is_told():
    class Unsized(Samples):
        def __len__(self) -> int:
            raise RuntimeError("no index")

    assert "split 'select': len() raised RuntimeError: no index" in fault(given(select=Unsized([])))


UNLIKE: list[tuple[np.ndarray, str]] = [
    (np.moveaxis(pair(20, 1)[0], 1, -1), "has input float32[4, 4, 3], but 'select' has input float32[3, 4, 4]"),
    (pair(20, 1)[0][..., :3], "float32[3, 4, 3]"),
    ((pair(20, 1)[0] * 255).astype(np.uint8), "uint8[3, 4, 4]"),
    (pair(20, 1)[0].astype(np.float64), "float64[3, 4, 4]"),
    (pair(20, 1)[0] * 255, "in 'calibration' but [0.00"),
    (pair(20, 1)[0] / 255, "0.00392] in 'calibration'"),
    (np.zeros_like(pair(20, 1)[0]), "spans [0, 0] in 'calibration'"),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "message"), UNLIKE, ids=[message for _, message in UNLIKE])
def test_splits_prepared_in_different_ways_are_refused(inputs: np.ndarray, message: str):
    assert message in fault(given(calibration=(inputs, pair(20, 1)[1])))


@pytest.mark.parametrize("name", ["confirm", "train"])
def test_the_range_of_every_split_is_compared(name: str):
    inputs, labels = pair(20, 7)
    assert f"in '{name}' but" in fault(given(**{name: (inputs * 255, labels)}))


def test_inputs_of_other_names_are_unlike():
    inputs, labels = pair(20, 1)
    assert "split 'calibration' has image" in fault(given(calibration=({"image": inputs}, labels)))


def test_a_constant_mask_beside_a_varied_one_is_no_fault():
    def masked(n: int, seed: int, varied: bool) -> Any:
        rng = np.random.default_rng(seed)
        mask = rng.integers(0, 2, (n, 6)).astype(np.float32) if varied else np.ones((n, 6), np.float32)
        return {"ids": rng.integers(0, 10**6, (n, 6)), "mask": mask}, np.arange(n) % 2

    make({"calibration": masked(9, 1, False), "select": masked(30, 2, True), "confirm": masked(30, 3, True)})


@pytest.mark.parametrize("raw", [None, [pair(3)], pair(3), "folder"])
def test_anything_but_a_mapping_of_splits_is_refused(raw: object):
    assert "Return a mapping from split name to (inputs, labels)" in fault(raw)


def test_an_unknown_split_is_named():
    assert "unknown split 'validation'. Splits are calibration, confirm" in fault(given(validation=pair(3)))


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({}, "calibration"),
        ({"train": pair(9)}, "select"),
        ({"test": pair(9)}, "calibration"),
        ({"train": pair(1), "test": pair(9)}, "calibration"),
        ({"train": pair(20), "test": pair(1, 5)}, "select"),
    ],
)
def test_a_split_with_no_samples_to_draw_from_is_named(raw: object, name: str):
    assert f"no samples for split '{name}'" in fault(raw, samples=1)


def test_too_few_calibration_samples_name_the_number_to_set():
    assert "Set data.calibration_samples to 20 or less" in fault(given(), samples=21)


def test_an_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt):
        make(given(select=Samples([KeyboardInterrupt()])))


def test_arrays_are_kept_as_views():
    raw = given()
    splits = make(raw)
    assert np.shares_memory(splits["select"].source[0]["input"], raw["select"][0])
    tensor = torch.rand(20, 3, 4, 4)
    shared = make(given(calibration=(tensor, torch.zeros(20, dtype=torch.long))))["calibration"].source[0]["input"]
    assert np.shares_memory(shared, tensor.numpy())


def test_a_file_larger_than_what_is_read_stays_on_disk(tmp_path):
    np.save(tmp_path / "x.npy", pair(40, 4)[0])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = make(given(select=(mapped, pair(40, 4)[1])))["select"].source[0]["input"]
    assert np.shares_memory(source, mapped)


def test_taking_some_samples_keeps_where_they_come_from():
    split = Split("calibration", pair(5), np.array([4, 2, 0]), "train").take(2)
    assert len(split) == 2
    assert split.place_of(1) == "split 'train', sample 2"
