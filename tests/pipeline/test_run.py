"""A whole run on a real net and real data: what the report says is true of the files on disk."""

import json

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from running import RECIPE, Run, kept, newest_report, start, write_recipe

from compress import zoo
from compress.__main__ import main
from compress.analyze.schema import analysis_schema
from compress.files import sha256_of
from compress.report.schema import report_schema
from compress.report.strict import unknown_keys


def winner(run: Run):
    return next(candidate for candidate in run.report.candidates if candidate.name == run.report.winner)


def predict(path, images) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def test_the_report_passes_and_fits_its_schema(finished):
    document = json.loads((finished.folder / "report.json").read_text())
    jsonschema.validate(document, report_schema())
    assert document["outcome"] == "pass"
    assert document["exit_code"] == 0
    # The analysis has a schema of its own, of which the report shows a part.
    assert [key for key in unknown_keys(finished.report) if not key.startswith("analysis.")] == []
    jsonschema.validate(document["analysis"], analysis_schema())


def test_the_score_in_the_report_is_that_of_the_file_on_disk(finished):
    images, labels = zoo.digits()["select"]
    right = predict(finished.artefact(finished.report.winner), images).argmax(axis=1) == labels
    reported = winner(finished).metrics["top1"]
    assert reported.value == pytest.approx(right.mean())
    assert reported.n == len(labels)
    assert reported.low < reported.value < reported.high


def test_the_drop_in_the_report_is_paired_with_the_float_file(finished):
    images, labels = zoo.digits()["select"]
    base = predict(finished.folder / "stages/01-export/model.onnx", images).argmax(axis=1) == labels
    quantized = predict(finished.artefact(finished.report.winner), images).argmax(axis=1) == labels
    gate = next(gate for gate in winner(finished).gates if gate.metric == "top1")
    assert gate.value == pytest.approx(base.mean() - quantized.mean())
    assert f"{int((base & ~quantized).sum())} lost, {int((quantized & ~base).sum())} won" in gate.note


def test_sizes_hashes_and_kernels_are_those_of_the_file(finished):
    candidate = winner(finished)
    path = finished.artefact(candidate.name)
    assert candidate.metrics["size_bytes"].value == path.stat().st_size
    assert candidate.sha256 == sha256_of(path)
    assert candidate.audit.integer_ops > 0
    assert candidate.audit.accelerated
    assert {node.op_type for node in onnx.load(path).graph.node} >= {"QuantizeLinear", "DequantizeLinear"}
    assert candidate.parity.passed


def test_the_winner_is_exported_and_confirmed_on_samples_no_decision_saw(finished):
    assert sha256_of(finished.folder / "export/model.onnx") == winner(finished).sha256
    confirmation = finished.report.confirmation
    assert confirmation.candidate == finished.report.winner
    images, labels = zoo.digits()["confirm"]
    right = predict(finished.folder / "export/model.onnx", images).argmax(axis=1) == labels
    assert confirmation.metrics["top1"].value == pytest.approx(right.mean())


def test_every_figure_has_an_n_and_what_is_not_measured_says_so(finished):
    for owner in (*finished.report.candidates, *finished.report.baselines):
        for name, value in owner.metrics.items():
            assert value.value is not None or value.note, (owner.name, name)
            assert value.value is None or value.n >= 1, (owner.name, name)


def test_every_scheme_that_was_tried_is_in_the_table(finished):
    tried = {candidate.name.split("/")[1] for candidate in finished.report.candidates if candidate.form == "int8"}
    assert tried == {"u8s8-channel-reduced", "u8s8-channel", "u8s8-tensor-reduced", "u8s8-tensor", "u8u8-tensor"}
    for candidate in finished.report.candidates:
        assert [row.batch for row in candidate.by_batch] == ([1, 4] if candidate.form == "int8" else [])


def test_the_second_run_makes_nothing_new(finished, head_start):
    before = kept(head_start)
    assert main(["run", str(write_recipe(head_start)), "--output", str(head_start)]) == 0
    assert kept(head_start) == before
    again = newest_report(head_start)
    assert again.report.winner == finished.report.winner
    assert winner(again).metrics == winner(finished).metrics
    assert all(row.cached for row in again.report.ledger)


def test_an_unreachable_speed_gate_ends_with_one_and_the_kernels_that_ran(head_start, capsys):
    recipe = write_recipe(head_start, RECIPE.replace("min: 0.01", "min: 90"))
    assert main(["run", str(recipe), "--output", str(head_start), "--force"]) == 1
    run = newest_report(head_start)
    assert (run.report.outcome, run.report.winner) == ("fail", None)
    assert "at least 90" in run.report.reason
    assert "run as integer kernels" in run.report.reason
    assert "QLinearConv" in run.report.reason
    assert (run.folder / "best/model.onnx").stat().st_size > 0
    assert run.report.exit_code == 1


def test_a_target_beyond_arithmetic_stops_before_any_stage_with_four(head_start, capsys):
    recipe = write_recipe(head_start, RECIPE.replace("min: 0.01", "min: 90"))
    assert main(["run", str(recipe), "--output", str(head_start)]) == 4
    report = newest_report(head_start).report
    assert (report.outcome, report.exit_code, report.winner, report.candidates) == ("stopped", 4, None, [])
    assert "at most" in report.reason
    assert "90x asked" in report.reason
    assert "Instead:" in report.reason
    assert [row.entered for row in report.ledger] == [False]
    assert report.verdict["sentence"] in report.reason
    assert report.next[0].endswith("--force")


def test_the_verdict_and_every_method_are_in_the_report(finished):
    assert finished.report.verdict["sentence"]
    methods = {method.name: method for method in finished.report.analysis.stages}
    assert {"int8 W8A8", "prune 50%", "half-depth student", "graph mode", "batch 8"} <= set(methods)
    assert all(method.helps in ("go", "warn", "stop") for method in methods.values())
    page = (finished.folder / "report.html").read_text()
    assert "What each method could give" in page
    assert 'id="roofline"' in page


def test_a_float_model_that_passes_everything_is_left_alone(head_start):
    text = RECIPE.replace("  - {metric: speedup, min: 0.01}\n  - {metric: size_ratio, max: 0.6}\n", "")
    assert main(["run", str(write_recipe(head_start, text)), "--output", str(head_start)]) == 0
    report = newest_report(head_start).report
    assert "do not compress it" in report.reason
    assert report.winner == "model"
    assert [row.entered for row in report.ledger] == [False]


def test_a_budget_that_is_used_up_stops_the_ladder_and_says_so(head_start):
    recipe = write_recipe(head_start)
    assert main(["run", str(recipe), "--output", str(head_start), "--set", "budget.minutes=0.0001"]) == 1
    report = newest_report(head_start).report
    assert "budget" in report.ledger[0].why
    assert (newest_report(head_start).folder / "best/model.onnx").exists()


def test_one_scheme_can_be_chosen_and_nodes_left_in_float(head_start):
    recipe = write_recipe(head_start, RECIPE.replace("  - ptq", "  - ptq: {method: u8s8-tensor, exclude: [head/Gemm]}"))
    assert main(["run", str(recipe), "--output", str(head_start)]) == 0
    report = newest_report(head_start).report
    assert [c.name for c in report.candidates if c.form == "int8"] == ["ptq/u8s8-tensor"]
    assert report.candidates[-1].audit.float_ops == 1


def test_an_excluded_node_that_is_not_there_is_named(head_start, capsys):
    recipe = write_recipe(head_start, RECIPE.replace("  - ptq", "  - ptq: {exclude: [haed/Gemm]}"))
    assert main(["run", str(recipe), "--output", str(head_start)]) == 2
    assert (
        "stages.ptq.exclude: no node 'haed/Gemm' in the exported model. Did you mean 'head/Gemm'?"
        in capsys.readouterr().err
    )


def test_the_plan_knows_what_is_cached_and_why_not(head_start, capsys):
    recipe = write_recipe(head_start)
    assert main(["plan", str(recipe), "--output", str(head_start), "--json"]) == 0
    states = {step["name"]: step["state"] for step in json.loads(capsys.readouterr().out)}
    assert states["export"] == states["ptq"] == states["u8s8-channel"] == "cached"
    assert main(["plan", str(recipe), "--output", str(head_start), "--set", "data.calibration_samples=64"]) == 0
    assert "changed: calibration" in capsys.readouterr().out


def test_a_plan_before_anything_ran_says_that_it_guesses(tmp_path, capsys):
    assert main(["plan", str(write_recipe(tmp_path)), "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "never run here" in out
    assert "first guess" in out
    assert not (tmp_path / "runs").exists()


def test_a_damaged_file_in_the_store_is_made_again(finished, head_start):
    victim = next((head_start / ".compress/store").glob("ptq-*/model.onnx"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    assert main(["run", str(write_recipe(head_start)), "--output", str(head_start)]) == 0
    assert list((head_start / ".compress/store").glob("damaged-*"))
    again = {candidate.name: candidate.sha256 for candidate in newest_report(head_start).report.candidates}
    assert again == {candidate.name: candidate.sha256 for candidate in finished.report.candidates}


def test_the_report_verb_shows_a_finished_run_again(finished, capsys, monkeypatch):
    monkeypatch.chdir(finished.output)
    html = finished.folder / "report.html"
    html.unlink()
    assert main(["report", "digits"]) == 0
    assert finished.report.winner.split("/")[1] in capsys.readouterr().out
    assert "<html" in html.read_text()


def test_standard_output_of_json_is_only_the_report(head_start, capfd):
    process = start([str(write_recipe(head_start)), "--json"], head_start)
    out, errors = process.communicate(timeout=300)
    assert json.loads(out)["outcome"] == "pass"
    assert "[1/7]" in errors
