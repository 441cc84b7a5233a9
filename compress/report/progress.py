"""Progress of a run on stderr: a live display on a terminal, one line per step start and end elsewhere."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from compress.report import words

BAR_WIDTH = 24
# A first step that was far off says little about the others, so estimates are corrected within bounds.
SLOWEST, FASTEST = 5.0, 0.2

Clock = Callable[[], float]


@dataclass(kw_only=True)
class Planned:
    """A step of the plan: seconds it should take (None: unknown), and seconds it took once it has ended."""

    name: str
    estimate: float | None
    spent: float = 0.0
    ended: bool = False
    cached: bool = False


class Step:
    """A step under way. `update` and `cached` only note what happened; the display reads them."""

    def __init__(self, run: "RunProgress", planned: Planned, label: str, text: str) -> None:
        self.run, self.planned, self.label, self.text = run, planned, label, text
        self.done: float | None = None
        self.total: float | None = None
        self.started = 0.0
        self.was_cached = False

    def update(self, *, done: float | None = None, total: float | None = None, text: str | None = None) -> None:
        """Say how far the step is (done of total) and what it is doing. Arguments left out keep their value."""
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.text = self.text if text is None else text

    def cached(self) -> None:
        """The step's result came from the store: its time is no measure of the estimates."""
        self.was_cached = True

    def __enter__(self) -> Self:
        self.run._start(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run._end(self, kind)


class RunProgress:
    """Progress over the planned steps: (name, estimated seconds or None). A step outside the plan is added to it."""

    def __init__(
        self, console: Console, steps: Sequence[tuple[str, float | None]], clock: Clock = time.monotonic
    ) -> None:
        self.console, self.clock = console, clock
        self.plan = [Planned(name=name, estimate=estimate) for name, estimate in steps]
        self.current: Step | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def step(self, name: str, text: str = "") -> Step:
        """The step of that name, to be entered with `with`; a name may be entered again, once per candidate say."""
        known = next((planned for planned in self.plan if planned.name == name), None)
        if known is None:
            known = Planned(name=name, estimate=None)
            self.plan.append(known)
        return Step(self, known, f"[{self.plan.index(known) + 1}/{len(self.plan)}] {words.one_line(name)}", text)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(Text(words.one_line(text)), highlight=False, soft_wrap=True)

    def seconds_left(self) -> float | None:
        """Estimated seconds until the last planned step ends; None where no estimate is left to go by."""
        step = self.current
        running = None if step is None else self.clock() - step.started
        fraction = None if step is None or not step.total or not step.done else min(1.0, step.done / step.total)
        return seconds_left(self.plan, None if step is None else step.planned, running, fraction)

    def __rich__(self) -> Group:
        row = Table.grid(padding=(0, 1))
        ended = sum(planned.ended for planned in self.plan)
        bar = ProgressBar(total=max(1, len(self.plan)), completed=ended, width=BAR_WIDTH)
        row.add_row(bar, Text(f"{ended} of {len(self.plan)} steps"), Text(self._time_left()))
        return Group(row, Text(self._current_line(), no_wrap=True, overflow="ellipsis"))

    def _time_left(self) -> str:
        left = self.seconds_left()
        return "time left unknown" if left is None else f"about {words.duration(round(left))} left"

    def _current_line(self) -> str:
        step = self.current
        if step is None:
            return ""
        inner = f"  {step.done:g} of {step.total:g}" if step.done is not None and step.total else ""
        return f"{_described(step)}{inner}  {words.duration(self.clock() - step.started)}"

    def _start(self, step: Step) -> None:
        step.started = self.clock()
        self.current = step
        if self._live is None:
            self.note(f"{_described(step)} ...")

    def _end(self, step: Step, kind: type[BaseException] | None) -> None:
        seconds = self.clock() - step.started
        planned = step.planned
        planned.spent, planned.ended = planned.spent + seconds, kind is None
        planned.cached = planned.cached or step.was_cached
        self.current = None
        self.note(f"{_described(step)} ... {_ending(step, kind)}{words.duration(seconds)}")


def seconds_left(
    plan: Sequence[Planned], current: Planned | None, running: float | None, fraction: float | None
) -> float | None:
    """Seconds left: the estimates of what is not done, corrected by how the estimates fared so far.

    current has been running for `running` seconds and is `fraction` done (None: unknown), which beats its estimate.
    """
    pace = _pace(plan)
    left = [
        planned.estimate * pace
        for planned in plan
        if planned is not current and not planned.ended and planned.estimate is not None
    ]
    if current is not None and running is not None:
        if fraction:
            left.append(running * (1 - fraction) / fraction)
        elif current.estimate is not None:
            left.append(max(0.0, current.estimate * pace - current.spent - running))
    return sum(left) if left or all(planned.ended for planned in plan) else None


def _pace(plan: Sequence[Planned]) -> float:
    judged = [(planned.spent, planned.estimate) for planned in plan if planned.ended and not planned.cached]
    spent = sum(seconds for seconds, estimate in judged if estimate)
    estimated = sum(estimate for _, estimate in judged if estimate)
    return min(SLOWEST, max(FASTEST, spent / estimated)) if estimated and spent else 1.0


def _described(step: Step) -> str:
    return f"{step.label}: {words.one_line(step.text)}" if step.text else step.label


def _ending(step: Step, kind: type[BaseException] | None) -> str:
    if kind is not None:
        return "interrupted after " if issubclass(kind, KeyboardInterrupt) else "failed after "
    return "from the store, " if step.was_cached else ""
