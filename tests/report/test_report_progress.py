"""Progress: lines without a terminal, a display with one, and an honest time left."""

import io

import pytest
from rich.console import Console

from compress.report.progress import Planned, RunProgress, seconds_left


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(run: RunProgress) -> list[str]:
    return run.console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(clock: Clock) -> RunProgress:
    return RunProgress(
        Console(file=io.StringIO(), width=80), [("analyze", 2.0), ("ptq", 10.0), ("confirm", None)], clock
    )


def test_each_step_prints_its_start_and_its_end(run: RunProgress, clock: Clock) -> None:
    with run:
        with run.step("ptq", "u8s8-channel"):
            clock.now += 12.3
        run.note("kept [bold]u8s8[/bold]")
    assert lines_of(run) == [
        "[2/3] ptq: u8s8-channel ...",
        "[2/3] ptq: u8s8-channel ... 12.3 s",
        "kept [bold]u8s8[/bold]",
    ]


def test_a_step_from_the_store_says_so(run: RunProgress) -> None:
    with run, run.step("analyze") as step:
        step.cached()
    assert lines_of(run)[-1] == "[1/3] analyze ... from the store, 0.0 s"


@pytest.mark.parametrize(("error", "said"), [(ValueError, "failed after"), (KeyboardInterrupt, "interrupted after")])
def test_a_step_that_breaks_says_so_and_lets_the_error_through(
    run: RunProgress, error: type[BaseException], said: str
) -> None:
    with pytest.raises(error), run, run.step("analyze"):
        raise error
    assert said in lines_of(run)[-1]


def test_a_step_outside_the_plan_joins_it(run: RunProgress) -> None:
    with run, run.step("export"):
        pass
    assert lines_of(run)[0] == "[4/4] export ..."


def test_time_left_follows_the_estimates_the_pace_and_the_inner_progress(run: RunProgress, clock: Clock) -> None:
    with run:
        assert run.seconds_left() == 12.0
        with run.step("analyze"):
            clock.now += 4.0  # twice as slow as planned
        assert run.seconds_left() == 20.0
        with run.step("ptq") as step:
            clock.now += 6.0
            assert run.seconds_left() == 14.0
            step.update(done=3, total=4)
            assert run.seconds_left() == pytest.approx(2.0)
        with run.step("confirm"):
            assert run.seconds_left() is None
        assert run.seconds_left() == 0.0


def test_a_step_from_the_store_does_not_change_the_pace() -> None:
    plan = [Planned(name="a", estimate=10.0, spent=0.01, ended=True, cached=True), Planned(name="b", estimate=5.0)]
    assert seconds_left(plan, None, None, None) == 5.0


def test_time_left_never_falls_below_nothing() -> None:
    plan = [Planned(name="a", estimate=1.0)]
    assert seconds_left(plan, plan[0], 50.0, None) == 0.0


def test_a_terminal_shows_the_step_and_keeps_its_last_line(clock: Clock) -> None:
    out = io.StringIO()
    run = RunProgress(Console(file=out, width=80, force_terminal=True), [("ptq", 10.0)], clock)
    with run, run.step("ptq", "u8s8") as step:
        step.update(done=40, total=160, text="calibrating")
        shown = Console(file=io.StringIO(), width=80, record=True)
        shown.print(run)
        clock.now += 3.0
    assert "[1/1] ptq: calibrating  40 of 160" in shown.export_text()
    assert "[1/1] ptq: calibrating ... 3.0 s" in out.getvalue()
