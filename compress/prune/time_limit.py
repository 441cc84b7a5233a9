"""A time limit around code of others that may run for minutes."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# An alarm that falls into a callback of the garbage collector or into a destructor is printed and lost: it comes again.
AGAIN_SECONDS = 0.1


class TooSlowError(BaseException):
    """Raised inside when time is up. Not an Exception, so that no handler on the way swallows it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooSlowError when what is inside takes longer. No limit outside the main thread, and on Windows."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    inside = True

    def stop(_number: int, _frame: FrameType | None) -> None:
        if inside:
            raise TooSlowError(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
        yield
    finally:
        inside = False  # from here on an alarm does nothing, so that the timer is always taken down
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
