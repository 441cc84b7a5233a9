"""Make the embedded data from its sources: `python -m compress.zoo.make_data [FOLDER]`.

FOLDER holds the idx files of Debian's package dataset-fashion-mnist. The digits come from scikit-learn.
The bytes of the archives depend on the data and on zlib, never on the clock.
"""

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from compress.errors import CompressError
from compress.zoo import sources
from compress.zoo.splits import Arrays, stratified_order

EPOCH = (1980, 1, 1, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """Write both archives into the package and say what went in; returns the exit code."""
    folder = Path(arguments[0]) if arguments else sources.DEBIAN
    try:
        train, test = sources.read_idx(folder)
    except CompressError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    kept_train, kept_test = sources.arranged(train, test)
    print(f"exact duplicates dropped: train {_lost(train, kept_train)}, test {_lost(test, kept_test)}")
    drawn = kept_train[0][: sources.EMBEDDED_TRAIN], kept_train[1][: sources.EMBEDDED_TRAIN]
    _write(sources.DATA / "fashion_mnist.npz", {"train": drawn, "test": kept_test})
    _write(sources.DATA / "digits.npz", {"digits": sklearn_digits()})
    return 0


def sklearn_digits() -> Arrays:
    """All 1,797 digits in stratified order. Images: (n, 8, 8) uint8 in 0..16; labels: (n,) uint8."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.uint8)
    order = stratified_order(images, labels)
    return images[order], labels[order]


def archive(pairs: dict[str, Arrays]) -> bytes:
    """An npz of `NAME_images` and `NAME_labels`."""
    named = {name: dict(zip(("images", "labels"), pair, strict=True)) for name, pair in pairs.items()}
    return packed({f"{name}_{part}": array for name, parts in named.items() for part, array in parts.items()})


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    """A compressed npz of the arrays in their order; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=EPOCH)
            target.writestr(entry, _npy(array), compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _write(path: Path, pairs: dict[str, Arrays]) -> None:
    content = archive(pairs)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    counts = ", ".join(f"{name} {len(labels)}" for name, (_, labels) in pairs.items())
    print(f"{path.name}: {counts}, {len(content)} bytes")


def _lost(before: Arrays, after: Arrays) -> int:
    return len(before[1]) - len(after[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
