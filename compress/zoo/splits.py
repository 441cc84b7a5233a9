"""How samples become splits: by a keyed hash of their pixels.

So the draw is the same with any numpy version and in any order of the source file.
"""

from hashlib import blake2b

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]

SEED = 0


def digests(images: np.ndarray, *, seed: int = SEED) -> list[bytes]:
    """images: (n, ...) of any dtype; returns n digests of 16 bytes. Equal samples have equal digests."""
    key = seed.to_bytes(8, "little")
    return [blake2b(image.tobytes(), digest_size=16, key=key).digest() for image in images]


def first_of_each(images: np.ndarray, *, banned: frozenset[bytes] = frozenset()) -> np.ndarray:
    """images: (n, ...); returns the indices, ascending, of samples that equal no earlier one and no banned one."""
    seen = set(banned)
    kept = []
    for index, digest in enumerate(digests(images)):
        if digest not in seen:
            seen.add(digest)
            kept.append(index)
    return np.array(kept, dtype=np.int64)


def stratified_order(images: np.ndarray, labels: np.ndarray, *, seed: int = SEED) -> np.ndarray:
    """images: (n, ...); labels: (n,); returns all n indices in an order of which every slice is stratified.

    Inside a class samples stand by keyed hash; the classes are then merged by relative rank, so a slice of any length
    holds each class in its share of the whole, to within one or two samples.
    """
    keys = digests(images, seed=seed)
    place = np.empty(len(labels), dtype=np.float64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranked = sorted(members.tolist(), key=lambda index: keys[index])
        place[ranked] = (np.arange(len(ranked)) + 0.5) / len(ranked)
    return np.lexsort((labels, place))


def cut(samples: Arrays, sizes: tuple[int, ...]) -> list[Arrays]:
    """Consecutive slices of (images, labels), of the given sizes, and one more with the rest."""
    images, labels = samples
    edges = np.cumsum(sizes)
    return list(zip(np.split(images, edges), np.split(labels, edges), strict=True))
