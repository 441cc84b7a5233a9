"""The data of the zoo: where the bytes come from and how they are normalised. No torch here."""

import gzip
import math
import zlib
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from compress.errors import InputError
from compress.zoo.splits import Arrays, cut, digests, first_of_each, stratified_order

Source = Literal["embedded", "debian"]
Splits = dict[str, Arrays]

DATA = Path(__file__).parent / "data"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
REINSTALL = "Install the files again with: apt-get install --reinstall dataset-fashion-mnist"
EMBEDDED_TRAIN = 10_000
CALIBRATION = 1_000
# Mean and standard deviation of the 60,000 training images, pixels scaled to [0, 1].
MEAN, STD = 0.2860, 0.3530
DIGITS_SIZES = {"calibration": 200, "select": 349, "confirm": 349}


def fashion_mnist(*, source: Source = "embedded", folder: Path = DEBIAN) -> Splits:
    """The four splits of Fashion-MNIST; see `compress.zoo.fashion_mnist`. `folder` holds the idx files of `debian`."""
    if source not in get_args(Source):
        raise InputError(
            "data.kwargs.source", f"unknown source {source!r}", f"Use one of {', '.join(get_args(Source))}"
        )
    if source == "embedded":
        train, test = read_pairs(DATA / "fashion_mnist.npz", ("train", "test"))
    else:
        train, test = arranged(*read_idx(folder))
    calibration, rest = cut(train, (CALIBRATION,))
    select, confirm = cut(test, (len(test[1]) // 2,))
    splits = {"train": rest, "calibration": calibration, "select": select, "confirm": confirm}
    return {name: (_normalised(images), labels.astype(np.int64)) for name, (images, labels) in splits.items()}


def digits() -> Splits:
    """The four splits of the 8x8 digits; see `compress.zoo.digits`."""
    (samples,) = read_pairs(DATA / "digits.npz", ("digits",))
    parts = cut(samples, tuple(DIGITS_SIZES.values()))
    splits = {"train": parts[-1], **dict(zip(DIGITS_SIZES, parts[:-1], strict=True))}
    return {
        name: (_grey(images) / np.float32(16), labels.astype(np.int64)) for name, (images, labels) in splits.items()
    }


def arranged(train: Arrays, test: Arrays) -> tuple[Arrays, Arrays]:
    """Drop exact duplicates and put both sets in stratified order. Images: (n, height, width) uint8.

    The test set keeps the first of equal images; the training set keeps the first too, but none that the test set has.
    """
    test = _take(test, first_of_each(test[0]))
    train = _take(train, first_of_each(train[0], banned=frozenset(digests(test[0]))))
    return _take(train, stratified_order(*train)), _take(test, stratified_order(*test))


def read_idx(folder: Path) -> tuple[Arrays, Arrays]:
    """Training and test set from the four gzipped idx files (format: yann.lecun.com/exdb/mnist).

    Raises InputError where a file is missing or its header does not fit.
    """
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder", "Install the data with: apt-get install dataset-fashion-mnist")
    return _idx_pair(folder, "train"), _idx_pair(folder, "t10k")


def read_pairs(path: Path, names: tuple[str, ...]) -> list[Arrays]:
    """For each name, `NAME_images` (n, height, width) and `NAME_labels` (n,), uint8, from an npz without pickles."""
    with np.load(path, allow_pickle=False) as arrays:
        return [(arrays[f"{name}_images"], arrays[f"{name}_labels"]) for name in names]


def _idx_pair(folder: Path, stem: str) -> Arrays:
    images = _idx(folder / f"{stem}-images-idx3-ubyte.gz")
    labels = _idx(folder / f"{stem}-labels-idx1-ubyte.gz")
    if len(images) != len(labels):
        raise InputError(f"{folder}/{stem}-*", f"{len(images)} images but {len(labels)} labels", REINSTALL)
    return images, labels


def _idx(path: Path) -> np.ndarray:
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as problem:
        raise InputError(str(path), f"cannot be read: {problem}", REINSTALL) from problem
    # Header: two zero bytes, 8 for unsigned bytes, the number of dimensions, then each dimension as big-endian int32.
    dimensions = content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    offset = 4 + 4 * dimensions
    if not dimensions or len(content) < offset:
        raise InputError(str(path), "not an idx file of unsigned bytes", REINSTALL)
    shape = np.frombuffer(content, ">i4", count=dimensions, offset=4).tolist()
    if len(content) - offset != math.prod(shape):
        raise InputError(str(path), f"{len(content) - offset} bytes where {shape} were announced", REINSTALL)
    return np.frombuffer(content, np.uint8, offset=offset).reshape(shape)


def _take(samples: Arrays, indices: np.ndarray) -> Arrays:
    return samples[0][indices], samples[1][indices]


def _normalised(images: np.ndarray) -> np.ndarray:
    # x = (pixel / 255 - mean) / std
    return (_grey(images) / np.float32(255) - np.float32(MEAN)) / np.float32(STD)


def _grey(images: np.ndarray) -> np.ndarray:
    """(n, height, width) uint8 to (n, 1, height, width) float32."""
    return images[:, None].astype(np.float32)
