"""Bytes per second of each memory level: working sets from 16 KiB to eight times the last-level cache.

A guest may be told of a cache larger than its share of memory, or than the sweep may touch. The largest working set
then stands for DRAM: what it shows is at least what DRAM gives, so that bounds stay bounds.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compress.device.ceilings import Figure, Level
from compress.device.facts import memory_bytes
from compress.device.levels import cache_bytes
from compress.measure.ceilings.stopwatch import Call, Stopwatch

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 16 << 10
# A call on less than this mostly pays for being called: small working sets are read again within one call.
ENOUGH_BYTES = 4 << 20
# Below this an operator's start takes as long as its bytes, and copy, triad and gemv would only measure that.
OPERATOR_BYTES = 128 << 10
GEMV_COLUMNS = 2048
# Between half a cache and twice it, a working set is partly in it: the figure belongs to neither level.
INSIDE, OUTSIDE = 0.75, 2.0
DRAM_FACTOR = 8


def levels(watch: Stopwatch) -> list[Level]:
    """Best of every size and kernel that belongs to a level, nearest level first, DRAM last."""
    import torch

    caches = cache_bytes()
    sizes = working_sets(caches, min(watch.effort.largest_bytes, memory_bytes() // 8))
    pool = torch.rand(max(size for _, size in sizes) // 4)
    found: dict[str, dict[str, Figure]] = {}
    for level, size in sizes:
        for kernel, moved, call in _calls(pool[: size // 4], watch.threads):
            sample = watch.time(call)
            figure = sample.figure(moved / sample.seconds, f"{kernel}, working set {size >> 10} KiB")
            best = found.setdefault(level, {})
            name = kernel.split()[0]
            best[name] = max(best.get(name, figure), figure, key=lambda one: one.value)
    return [Level(name=name, size_bytes=caches.get(name), bytes_per_s=best) for name, best in found.items()]


def working_sets(caches: dict[str, int], largest: int) -> list[tuple[str, int]]:
    """(level, bytes) of the sweep: powers of two times 1 and 1.5, each with the level it is sure to live in.

    The last is always DRAM's.
    """
    outermost = list(caches.values())[-1]
    end = max(min(DRAM_FACTOR * outermost, largest), SMALLEST)
    powers = [SMALLEST << power for power in range((end // SMALLEST).bit_length())]
    steps = sorted({*powers, *(power * 3 // 2 for power in powers if power < outermost)})
    named = [(_level_of(size, caches), size) for size in steps if size <= end]
    known = [(level, size) for level, size in named if level]
    return known if known and known[-1][0] == "dram" else [*known, ("dram", end)]


def _level_of(size: int, caches: dict[str, int]) -> str | None:
    inner = 0
    for name, capacity in caches.items():
        if OUTSIDE * inner <= size <= INSIDE * capacity:
            return name
        inner = capacity
    return "dram" if size >= OUTSIDE * inner else None


def _calls(data: "Tensor", threads: int) -> Iterator[tuple[str, int, Call]]:
    """Kernel, bytes moved by one call, call. data: (n,) float32, the whole working set, split among the operands."""
    import torch

    size = data.numel() * 4
    again = data.expand(max(1, ENOUGH_BYTES // size), -1)
    yield "read by torch sum", again.numel() * 4, again.sum
    if size < OPERATOR_BYTES:
        return
    if threads == 1:  # the NumPy build brings a thread pool of its own
        first, second = (part.numpy() for part in data.chunk(2))
        yield "read by numpy dot", size, lambda: first.dot(second)
    source, target = data.chunk(2)
    yield "copy", size, lambda: target.copy_(source)
    third = len(data) // 3
    a, b, c = (data[index * third : (index + 1) * third] for index in range(3))
    yield "triad", 12 * third, lambda: torch.add(b, c, alpha=1.5, out=a)
    weights = data[: len(data) // GEMV_COLUMNS * GEMV_COLUMNS].view(-1, GEMV_COLUMNS)
    vector = torch.rand(GEMV_COLUMNS)
    yield "gemv", weights.numel() * 4, lambda: torch.mv(weights, vector)
