"""Splits: what a data ref returns, checked and brought to one shape. Pure NumPy.

A split is read in batches of `(inputs, labels)`: inputs by name, each (n, ...); labels (n,) or (n, ...).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import InputError

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array]

EVALUATED = ("select", "confirm")
NEVER_EVALUATED = ("train", "calibration")
SINGLE_INPUT = "input"


@dataclass(frozen=True)
class Split:
    """Samples behind `source`, restricted to `indices` (n,). `source` is (inputs, labels) or a torch-style dataset."""

    name: str
    source: Any
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, chosen: NDArray[np.int64]) -> Batch:
        """The samples at positions `chosen` of this split, stacked."""
        return _read(self.source, self.indices[chosen], self.name)

    def batches(self, size: int, samples: int | None = None) -> Iterator[Batch]:
        """Batches of `size` samples in order; the last one may be smaller."""
        total = len(self) if samples is None else min(samples, len(self))
        for start in range(0, total, size):
            yield self.read(np.arange(start, min(start + size, total)))

    def take(self, samples: int) -> "Split":
        return Split(self.name, self.source, self.indices[:samples])


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
    splits["calibration"] = splits["calibration"].take(calibration_samples)
    hashes = {name: sample_hashes(split, place) for name, split in splits.items()}
    leaks = find_leaks(hashes)
    if leaks and refuse_leaks:
        raise InputError(place, "; ".join(leaks), "Remove them, or set data.leaks to report")
    digests = {name: hashlib.sha256(b"".join(rows)).hexdigest() for name, rows in hashes.items()}
    _check_signatures(splits, place)
    return Splits(by_name=splits, digests=digests, leaks=leaks)


def sample_hashes(split: Split, place: str) -> list[bytes]:
    """One digest per sample over its inputs and its label. Raises InputError on NaN or infinity, naming the sample."""
    rows: list[bytes] = []
    for inputs, labels in split.batches(256):
        _refuse_non_finite(inputs, labels, split.name, len(rows), place)
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
        columns = (
            {str(k): _array(v) for k, v in inputs.items()}
            if isinstance(inputs, Mapping)
            else {SINGLE_INPUT: _array(inputs)}
        )
        labels = _array(labels)
        lengths = {key: len(column) if column.ndim else 0 for key, column in columns.items()} | {
            "labels": len(labels) if labels.ndim else 0
        }
        if len(set(lengths.values())) != 1:
            shown = ", ".join(f"{key} {count}" for key, count in lengths.items())
            raise InputError(
                place,
                f"split '{name}' has inputs and labels of different lengths ({shown})",
                "Give one label per sample",
            )
        return _non_empty(Split(name, (columns, labels), np.arange(len(labels), dtype=np.int64)), place)
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str | bytes | Mapping):
        return _non_empty(Split(name, value, np.arange(len(value), dtype=np.int64)), place)
    fact = f"split '{name}' is {type(value).__name__}"
    raise InputError(place, fact, "Give (inputs, labels), or a dataset with __len__ and __getitem__")


def _non_empty(split: Split, place: str) -> Split:
    if not len(split):
        raise InputError(place, f"split '{split.name}' is empty", "Give it at least one sample")
    return split


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
    return Split(name, split.source, split.indices[chosen])


def _read(source: Any, indices: NDArray[np.int64], name: str) -> Batch:
    if isinstance(source, tuple):
        columns, labels = source
        return {key: column[indices] for key, column in columns.items()}, labels[indices]
    items = [source[int(i)] for i in indices]
    try:
        first = items[0][0]
        if isinstance(first, Mapping):
            inputs = {str(key): np.stack([_array(item[0][key]) for item in items]) for key in first}
        else:
            inputs = {SINGLE_INPUT: np.stack([_array(item[0]) for item in items])}
        return inputs, np.stack([_array(item[1]) for item in items])
    except (TypeError, KeyError, IndexError, ValueError) as error:
        fact = f"samples {indices[0]} to {indices[-1]} cannot be stacked ({error})"
        raise InputError(f"split '{name}'", fact, "Every sample is (input, label) with the same shapes") from error


def _array(value: Any) -> Array:
    """A NumPy view of an array, a torch tensor or a list."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _refuse_non_finite(inputs: dict[str, Array], labels: Array, split: str, start: int, place: str) -> None:
    for name, values in (*inputs.items(), ("labels", labels)):
        if values.dtype == object:
            raise InputError(
                place, f"split '{split}', {name}: Python objects instead of numbers", "Give numeric arrays"
            )
        if values.dtype.kind in "fc" and not np.isfinite(values).all():
            bad = ~np.isfinite(values.reshape(len(values), -1))
            sample = int(np.argmax(bad.any(axis=1)))
            found = "NaN" if np.isnan(values[sample]).any() else "inf"
            fact = f"split '{split}', sample {start + sample}, {name}: {int(bad[sample].sum())} {found}"
            raise InputError(place, fact, "Remove the sample or mend its values")


def _check_signatures(splits: dict[str, Split], place: str) -> None:
    """Calibration and evaluation must see the same kind of input: names, shapes, dtypes, and roughly the same range."""
    expected = _signature(splits["select"])
    for name in ("calibration", "confirm", "train"):
        if name in splits and _signature(splits[name]) != expected:
            fact = f"split '{name}' has {_show(_signature(splits[name]))}, but 'select' has {_show(expected)}"
            raise InputError(place, fact, "Prepare every split in the same way")
    for name, (low, high) in _ranges(splits["calibration"]).items():
        other_low, other_high = _ranges(splits["select"])[name]
        width, other = high - low, other_high - other_low
        if max(width, other) > 50 * max(min(width, other), 1e-12):
            spans = f"[{low:.4g}, {high:.4g}] in 'calibration' but [{other_low:.4g}, {other_high:.4g}] in 'select'"
            fact = f"input '{name}' spans {spans}"
            raise InputError(place, fact, "Scale every split in the same way")


def _signature(split: Split) -> dict[str, tuple[str, tuple[int, ...]]]:
    inputs, _ = split.read(np.arange(1))
    return {name: (str(values.dtype), values.shape[1:]) for name, values in sorted(inputs.items())}


def _ranges(split: Split) -> dict[str, tuple[float, float]]:
    inputs, _ = split.read(np.arange(min(64, len(split))))
    return {
        name: (float(values.min()), float(values.max())) for name, values in inputs.items() if values.dtype.kind == "f"
    }


def _show(signature: dict[str, tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in signature.items())
