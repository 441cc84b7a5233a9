"""Counting makes tens of thousands of small objects and no cycles, so looking for cycles meanwhile is wasted time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No search for reference cycles inside; half of the time of a count goes into it where torch is loaded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
