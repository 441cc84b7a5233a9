"""Splits: what a data ref returns, checked and brought to one shape. Pure NumPy.

A split is read in batches of `(inputs, labels)`: inputs by name, each (n, ...); labels (n,) or (n, ...).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import CompressError, InputError

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array]
Signature = dict[str, tuple[str, tuple[int, ...]]]
Ranges = dict[str, tuple[float, float]]

EVALUATED = ("select", "confirm")
NEVER_EVALUATED = ("train", "calibration")
SINGLE_INPUT = "input"


@dataclass(frozen=True)
class Split:
    """Samples behind `source`, restricted to `indices` (n,). `source` is (inputs, labels) or a torch-style dataset.

    origin: the user's split that this one was drawn from; empty where it is the user's own.
    """

    name: str
    source: Any
    indices: NDArray[np.int64]
    origin: str = ""

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, chosen: NDArray[np.int64]) -> Batch:
        """The samples at positions `chosen` of this split, stacked."""
        return _read(self.source, self.indices[chosen], self.origin or self.name)

    def batches(self, size: int, samples: int | None = None) -> Iterator[Batch]:
        """Batches of `size` samples in order; the last one may be smaller."""
        total = len(self) if samples is None else min(samples, len(self))
        for start in range(0, total, size):
            yield self.read(np.arange(start, min(start + size, total)))

    def take(self, samples: int) -> "Split":
        return Split(self.name, self.source, self.indices[:samples], self.origin)

    def place_of(self, position: int) -> str:
        """Where the user finds the sample: `split 'train', sample 17`, in the numbers of the data function."""
        return f"split '{self.origin or self.name}', sample {self.indices[position]}"


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The splits by name, with the digest of what they hold and the leaks found between them."""

    by_name: dict[str, Split]
    digests: dict[str, str]
    leaks: list[str]

    def __getitem__(self, name: str) -> Split:
        return self.by_name[name]


def make_splits(raw: object, *, place: str, calibration_samples: int, seed: int, refuse_leaks: bool) -> Splits:
    """Check what a data ref returned and derive what it left out. Raises InputError naming split and sample."""
    if not isinstance(raw, Mapping):
        raise InputError(
            place,
            f"the data function returned {type(raw).__name__}",
            "Return a mapping from split name to (inputs, labels)",
        )
    splits = _derive({str(name): _split(str(name), value, place) for name, value in raw.items()}, place, seed)
    if len(splits["calibration"]) < calibration_samples:
        have = len(splits["calibration"])
        fact = f"calibration_samples is {calibration_samples}, but the calibration split holds {have}"
        raise InputError(place, fact, f"Set data.calibration_samples to {have} or less")
    hashes = {name: sample_hashes(split, place) for name, split in splits.items()}
    leaks = find_leaks(hashes)
    if leaks and refuse_leaks:
        raise InputError(place, "; ".join(leaks), "Remove them, or set data.leaks to report")
    _check_signatures(splits, place)
    # Not the first ones: a split in order of class would leave classes out.
    order = np.random.default_rng(seed).permutation(len(splits["calibration"]))
    used = np.sort(order[:calibration_samples])
    splits["calibration"] = _part(splits["calibration"], "calibration", used)
    hashes["calibration"] = [hashes["calibration"][i] for i in used]
    digests = {name: hashlib.sha256(b"".join(rows)).hexdigest() for name, rows in hashes.items()}
    return Splits(by_name=splits, digests=digests, leaks=leaks)


def sample_hashes(split: Split, place: str) -> list[bytes]:
    """One digest per sample over its inputs and its label.

    Raises InputError on what is no number, on NaN or infinity, and on samples of unlike shape, naming the sample.
    """
    rows: list[bytes] = []
    expected = None
    for inputs, labels in split.batches(256):
        _refuse_unusable(inputs, labels, split, len(rows), place)
        shapes = _signature(inputs) | {"labels": ("", labels.shape[1:])}
        expected = expected or shapes
        if shapes != expected:
            fact = f"{split.place_of(len(rows))} has {_show(shapes)}, but the first sample has {_show(expected)}"
            raise InputError(place, fact, "Every sample is (input, label) with the same shapes")
        head = repr([(name, str(values.dtype), values.shape[1:]) for name, values in sorted(inputs.items())]).encode()
        for i in range(len(labels)):
            body = hashlib.blake2b(head, digest_size=16)
            for name in sorted(inputs):
                body.update(np.ascontiguousarray(inputs[name][i]).tobytes())
            label = hashlib.blake2b(np.ascontiguousarray(labels[i]).tobytes(), digest_size=8)
            rows.append(body.digest() + label.digest())
    return rows


def find_leaks(hashes: Mapping[str, Sequence[bytes]]) -> list[str]:
    """Samples whose inputs stand in two splits that must not share any, one sentence per pair of splits."""
    bodies = {name: [row[:16] for row in rows] for name, rows in hashes.items()}
    pairs = [(a, b) for a in NEVER_EVALUATED for b in EVALUATED] + [EVALUATED, NEVER_EVALUATED]
    leaks = []
    for left, right in pairs:
        known = set(bodies.get(left, ()))
        shared = [i for i, row in enumerate(bodies.get(right, ())) if row in known]
        if shared:
            shown = ", ".join(map(str, shared[:3])) + (", ..." if len(shared) > 3 else "")
            leaks.append(f"{len(shared)} samples of '{right}' also stand in '{left}' (sample {shown})")
    return leaks


def _split(name: str, value: object, place: str) -> Split:
    """A named split from (inputs, labels) or from a torch-style dataset."""
    if isinstance(value, tuple | list) and len(value) == 2:
        inputs, labels = value
        given = {str(key): column for key, column in inputs.items()} if isinstance(inputs, Mapping) else None
        named = {SINGLE_INPUT: inputs} if given is None else given
        columns = {key: _column(column, f"split '{name}', {key}", place) for key, column in named.items()}
        labels = _column(labels, f"split '{name}', labels", place)
        _same_lengths([*((key, len(column)) for key, column in columns.items()), ("labels", len(labels))], name, place)
        return _whole(name, (columns, labels), len(labels), place)
    if _is_dataset(value):
        return _whole(name, value, _length(value, name, place), place)
    size = f" of {len(value)}" if isinstance(value, tuple) else ""
    fact = f"split '{name}' is {type(value).__name__}{size}"
    raise InputError(place, fact, "Give (inputs, labels), or a dataset with __len__ and __getitem__")


def _is_dataset(value: object) -> bool:
    """A list of samples or a torch-style dataset; a bare array has a length, too, but no labels."""
    indexable = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return indexable and not isinstance(value, str | bytes | Mapping | tuple) and not hasattr(value, "dtype")


def _length(dataset: Any, name: str, place: str) -> int:
    try:
        return len(dataset)
    except Exception as error:  # the user's code, so any class
        raise InputError(place, f"split '{name}': len() raised {_told(error)}", "Mend the dataset") from error


def _same_lengths(lengths: Sequence[tuple[str, int]], name: str, place: str) -> None:
    if len(lengths) < 2:
        raise InputError(place, f"split '{name}' has no inputs", "Give at least one input by name")
    if len({count for _, count in lengths}) != 1:
        shown = ", ".join(f"{key} {count}" for key, count in lengths)
        fact = f"split '{name}' has inputs and labels of different lengths ({shown})"
        raise InputError(place, fact, "Give one label per sample")


def _whole(name: str, source: Any, samples: int, place: str) -> Split:
    if not samples:
        raise InputError(place, f"split '{name}' is empty", "Give it at least one sample")
    return Split(name, source, np.arange(samples, dtype=np.int64))


def _derive(splits: dict[str, Split], place: str, seed: int) -> dict[str, Split]:
    """Fill in calibration from train, and select and confirm from test, by the seed."""
    known = {"train", "calibration", "select", "confirm", "test"}
    unknown = sorted(splits.keys() - known)
    if unknown:
        raise InputError(place, f"unknown split '{unknown[0]}'", f"Splits are {', '.join(sorted(known))}")
    rng = np.random.default_rng(seed)
    if "calibration" not in splits and "train" in splits:
        order = rng.permutation(len(splits["train"]))
        held = min(len(order) // 2, 2000)
        splits["calibration"] = _part(splits["train"], "calibration", order[:held])
        splits["train"] = _part(splits["train"], "train", np.sort(order[held:]))
    if "test" in splits:
        whole = splits.pop("test")
        order = rng.permutation(len(whole))
        halves = {"select": np.sort(order[: len(order) // 2]), "confirm": np.sort(order[len(order) // 2 :])}
        splits |= {name: _part(whole, name, half) for name, half in halves.items() if name not in splits}
    missing = [name for name in ("calibration", *EVALUATED) if name not in splits or not len(splits[name])]
    if missing:
        raise InputError(
            place, f"no samples for split '{missing[0]}'", "Return calibration, select and confirm, or train and test"
        )
    return splits


def _part(split: Split, name: str, chosen: NDArray[np.int64]) -> Split:
    return Split(name, split.source, split.indices[chosen], split.origin or split.name)


def _read(source: Any, indices: NDArray[np.int64], name: str) -> Batch:
    if isinstance(source, tuple):
        columns, labels = source
        return {key: column[indices] for key, column in columns.items()}, labels[indices]
    items = [_item(source, int(i), name) for i in indices]
    try:
        first = items[0][0]
        if isinstance(first, Mapping):
            inputs = {str(key): np.stack([_array(item[0][key]) for item in items]) for key in first}
        else:
            inputs = {SINGLE_INPUT: np.stack([_array(item[0]) for item in items])}
        return inputs, np.stack([_array(item[1]) for item in items])
    except (TypeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        fact = f"samples {indices[0]} to {indices[-1]} cannot be stacked ({_told(error)})"
        raise InputError(f"split '{name}'", fact, "Every sample is (input, label) with the same shapes") from error


def _item(source: Any, index: int, name: str) -> tuple[Any, Any] | list[Any]:
    """One sample of a dataset, as the pair it must be."""
    place = f"split '{name}', sample {index}"
    try:
        item = source[index]
    except CompressError:
        raise
    except Exception as error:  # the user's code, so any class
        raise InputError(place, f"reading it raised {_told(error)}", "Mend the dataset, or leave it out") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise InputError(place, f"it is {type(item).__name__}{size}", "Every sample is (input, label)")
    return item


def _column(value: Any, what: str, place: str) -> Array:
    """All samples of one input, or all labels: (n, ...). A view wherever the value allows one."""
    try:
        column = _array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(place, f"{what}: no array can be made of it ({_told(error)})", "Give a plain array") from error
    if not column.ndim:
        raise InputError(
            place, f"{what}: {type(value).__name__} instead of an array", "Put the samples on the first axis"
        )
    return column


def _array(value: Any) -> Array:
    """A NumPy view of an array, a torch tensor or a list."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _told(error: BaseException) -> str:
    """Class and first line of an error that is not ours."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:200]}" if first else type(error).__name__


def _refuse_unusable(inputs: dict[str, Array], labels: Array, split: Split, start: int, place: str) -> None:
    where = f"split '{split.origin or split.name}'"
    for name, values in (*inputs.items(), ("labels", labels)):
        if values.dtype == object or (values is not labels and values.dtype.kind not in "biuf"):
            kind = "Python objects" if values.dtype == object else str(values.dtype)
            raise InputError(place, f"{where}, {name}: {kind} instead of numbers", "Give numeric arrays")
        if values is not labels and not values.size:
            raise InputError(
                place, f"{where}, {name}: samples of shape {list(values.shape[1:])} are empty", "Fill them"
            )
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            bad = ~np.isfinite(values.reshape(len(values), -1))
            sample = int(np.argmax(bad.any(axis=1)))
            found = "NaN" if np.isnan(values[sample]).any() else "inf"
            fact = f"{split.place_of(start + sample)}, {name}: {int(bad[sample].sum())} {found}"
            raise InputError(place, fact, "Remove the sample or mend its values")


def _check_signatures(splits: dict[str, Split], place: str) -> None:
    """Calibration and evaluation must see the same kind of input: names, shapes, dtypes, and roughly the same range."""
    expected = _signature(_first(splits["select"], 1))
    ranges = _ranges(splits["select"])
    for name in ("calibration", "confirm", "train"):
        if name not in splits:
            continue
        found = _signature(_first(splits[name], 1))
        if found != expected:
            fact = f"split '{name}' has {_show(found)}, but 'select' has {_show(expected)}"
            raise InputError(place, fact, "Prepare every split in the same way")
        _check_ranges(_ranges(splits[name]), ranges, name, place)


def _check_ranges(found: Ranges, expected: Ranges, split: str, place: str) -> None:
    """Refuse magnitudes 50 times apart, such as 0..255 against 0..1; a constant mask of ones passes."""
    for name, (low, high) in found.items():
        other_low, other_high = expected[name]
        sizes = sorted((max(abs(low), abs(high)), max(abs(other_low), abs(other_high))))
        if sizes[1] > 50 * max(sizes[0], 1e-12):
            spans = f"[{low:.4g}, {high:.4g}] in '{split}' but [{other_low:.4g}, {other_high:.4g}] in 'select'"
            raise InputError(place, f"input '{name}' spans {spans}", "Scale every split in the same way")


def _first(split: Split, samples: int) -> dict[str, Array]:
    return split.read(np.arange(min(samples, len(split))))[0]


def _signature(inputs: dict[str, Array]) -> Signature:
    return {name: (str(values.dtype), values.shape[1:]) for name, values in sorted(inputs.items())}


def _ranges(split: Split) -> Ranges:
    inputs = _first(split, 64)
    return {
        name: (float(values.min()), float(values.max())) for name, values in inputs.items() if values.dtype.kind == "f"
    }


def _show(signature: Signature) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in signature.items())
