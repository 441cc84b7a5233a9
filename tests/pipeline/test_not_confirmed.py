"""A winner that does not hold on unseen samples is no winner: the ladder goes on, and asks more of the next one."""

from dataclasses import replace

import pytest
from running import RECIPE, newest_report, write_recipe

from compress.__main__ import main
from compress.pipeline import MOST_LOOKS
from compress.stages import confirm
from compress.stages.judge import NOT_CONFIRMED


@pytest.fixture
def refusing(monkeypatch):
    """Make `confirm` fail the first gate of so many winners. Returns whom it looked at, and how surely."""
    looked, bounds = [], []
    really, judge = confirm.run, confirm.judge

    def install(times: int):
        def run(context, model, candidate):
            found = really(context, model, candidate)
            looked.append(candidate.name)
            if len(looked) > times:
                return found
            gates = [replace(found.gates[0], outcome="fail"), *found.gates[1:]]
            return replace(found, gates=gates, outcome="fail")

        monkeypatch.setattr(confirm, "run", run)
        return looked, bounds

    def watched(*arguments):
        bounds.append(arguments[-1])
        return judge(*arguments)

    monkeypatch.setattr(confirm, "judge", watched)
    return install


def run(folder) -> int:
    return main(["run", str(write_recipe(folder, RECIPE)), "--output", str(folder), "--force"])


def test_the_next_best_candidate_is_confirmed_at_half_the_error(head_start, refusing):
    looked, bounds = refusing(1)
    assert run(head_start) == 0
    report = newest_report(head_start).report
    refuted, winner = looked
    assert report.winner == report.confirmation.candidate == winner != refuted
    assert bounds == pytest.approx([0.95, 0.975])
    row = next(candidate for candidate in report.candidates if candidate.name == refuted)
    assert (row.outcome, row.gates[0].outcome) == ("fail", "fail")
    assert row.note.startswith(NOT_CONFIRMED)
    assert "of confirm" in row.gates[0].note


def test_the_ladder_gives_up_after_a_few_looks_and_says_what_was_missed(head_start, refusing):
    looked, _ = refusing(MOST_LOOKS)
    assert run(head_start) == 1
    report = newest_report(head_start).report
    assert report.winner is None
    assert 1 < len(looked) <= MOST_LOOKS
    assert len(set(looked)) == len(looked)
    assert "confirmed" in report.reason
    assert [row.stage for row in report.ledger].count("ptq") == 1
