"""Progress of a training run, with the time that is left by the steps made in this process."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from compress.train.state import State


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Who is told (`update`: done, total, text) and who is asked whether to stop."""

    update: Callable[[int, int, str], None] = field(default=lambda _done, _total, _text: None)
    stop: Callable[[], bool] = field(default=lambda: False)
    text: str = "training"


@dataclass(kw_only=True)
class Progress:
    total: int
    epochs: int
    watch: Watch

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.done = 0

    def show(self, state: State) -> None:
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.total - state.step)
        epoch = min(self.epochs, len(state.epochs) + 1)
        loss = state.losses[-1]
        text = f"{self.watch.text}: epoch {epoch}/{self.epochs}, loss {loss:.4f}, {_clock(left)} left, steps"
        self.watch.update(state.step, self.total, text)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
