"""PTQ's steps in whole runs: what is tried, what the ledger says, what is refused, what the store gives back."""

import pytest
from running import RECIPE, kept, newest_report, write_recipe

from compress.__main__ import main

GATES = RECIPE[RECIPE.index("gates:") : RECIPE.index("stages:")]
ENCODER = RECIPE.replace("digits_cnn", "digits_encoder")


def run(folder, text: str) -> int:
    return main(["run", str(write_recipe(folder, text)), "--output", str(folder), "--force"])


def with_gates(text: str, *gates: str) -> str:
    return text.replace(GATES, "gates:\n" + "".join(f"  - {{{gate}}}\n" for gate in gates))


def made(report) -> list[str]:
    return [candidate.name.removeprefix("ptq/") for candidate in report.candidates if candidate.form == "int8"]


def test_the_first_step_that_passes_is_the_last_one_and_the_ledger_names_its_candidates(finished):
    rows = finished.report.ledger
    assert [(row.stage, row.entered, row.kept) for row in rows] == [("ptq", True, True), ("ptq/variants", True, True)]
    assert all(name in rows[1].gain for name in made(finished.report))


def test_steps_that_cannot_change_what_is_missed_are_skipped_with_the_reason(head_start):
    text = with_gates(RECIPE, "metric: top1, max_drop: 0.05", "metric: speedup, min: 50")
    assert run(head_start, text) == 1
    report = newest_report(head_start).report
    skipped = [row for row in report.ledger if not row.entered]
    assert [row.stage for row in skipped] == ["ptq/clip", "ptq/equalize", "ptq/round", "ptq/mixed"]
    assert all("misses speedup" in row.why for row in skipped)
    assert all(row.why.endswith("cannot change") for row in skipped)
    assert len(made(report)) == 5


@pytest.mark.parametrize(("method", "name"), [("round", "+round"), ("weights-int4-gptq", "weights-int4-gptq")])
def test_a_step_can_be_fixed_by_hand(head_start, method, name):
    text = with_gates(RECIPE, "metric: size_ratio, max: 0.7").replace("  - ptq", f"  - ptq: {{method: {method}}}")
    assert run(head_start, text) == 0
    report = newest_report(head_start).report
    assert len(made(report)) == 1
    assert made(report)[0].endswith(name)
    before = kept(head_start)
    assert run(head_start, text) == 0
    assert kept(head_start) == before
    assert newest_report(head_start).report.candidates[0].sha256 == report.candidates[0].sha256


def test_mixed_precision_moves_operators_back_until_the_gate_passes(head_start):
    text = with_gates(RECIPE, "metric: sqnr_db, min: 39", "metric: size_ratio, max: 0.9")
    assert run(head_start, text.replace("  - ptq", "  - ptq: {method: mixed}")) in (0, 1)
    report = newest_report(head_start).report
    plain, mixed = (candidate for candidate in report.candidates if candidate.form == "int8")
    assert mixed.name == f"{plain.name}+mixed"
    assert mixed.metrics["sqnr_db"].value >= 39 > plain.metrics["sqnr_db"].value
    assert mixed.audit.float_ops > plain.audit.float_ops
    assert "back in float: " in mixed.note
    assert " ms" in mixed.note


def test_a_file_whose_outputs_depend_on_batch_mates_is_refused_with_the_figure(tmp_path):
    text = with_gates(ENCODER, "metric: top1, max_drop: 0.1", "metric: size_ratio, max: 0.9")
    assert run(tmp_path, text.replace("  - ptq", "  - ptq: {method: dynamic-u8-tensor}")) == 1
    report = newest_report(tmp_path).report
    candidate = next(one for one in report.candidates if one.form == "int8")
    gate = candidate.gates[-1]
    assert (gate.metric, gate.outcome) == ("batch_variance", "fail")
    assert gate.value == candidate.metrics["batch_variance"].value > 0.002
    assert "batch_variance" in report.reason
    assert report.winner is None
