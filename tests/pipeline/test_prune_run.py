"""A whole run that prunes: cut, fine-tuned, quantized; each a file that is judged, and the same bits after a kill."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from running import Run, newest_report, start, write_recipe

from compress import zoo
from compress.__main__ import main
from compress.prune.checks import outputs_of
from compress.prune.replay import load_
from compress.report.strict import unknown_keys

RECIPE = """\
schema: 1
name: digits
model: {ref: "compress.zoo:digits_cnn"}
data: {ref: "compress.zoo:digits", calibration_samples: 128}
gates:
  - {metric: top1, max_drop: 0.08}
  - {metric: size_ratio, max: 0.35}
stages:
  - ptq: {method: u8s8-channel-reduced}
  - prune: {by: params, keep: 0.6, finetune: {epochs: 4, learning_rate: 0.003, batch_size: 32}}
"""
MADE_BY_PRUNING = shutil.ignore_patterns("prune-*", "train-*", "pruned-*")
pytestmark = pytest.mark.slow


def run_to_the_end(folder: Path) -> Run:
    process = start([str(folder / "digits.yaml")], folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return newest_report(folder)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("pruned")
    write_recipe(folder, RECIPE)
    return run_to_the_end(folder)


def named(run: Run, name: str):
    return next(candidate for candidate in run.report.candidates if candidate.name == name)


def test_pruned_and_quantized_together_pass_where_quantization_alone_does_not(pruned):
    alone, both = named(pruned, "ptq/u8s8-channel-reduced"), named(pruned, "prune/ptq/u8s8-channel-reduced")
    assert (alone.outcome, both.outcome) == ("fail", "pass")
    assert pruned.report.winner == both.name
    assert both.parent == "prune"
    assert both.metrics["size_ratio"].value < 0.35 < alone.metrics["size_ratio"].value
    assert [key for key in unknown_keys(pruned.report) if not key.startswith("analysis.")] == []


def test_what_was_achieved_stands_beside_what_was_asked(pruned):
    floating = named(pruned, "prune")
    assert floating.form == "float"
    assert floating.note.startswith("asked params 0.60; left are latency ")
    assert "reloaded from its channel map in a fresh process with identical outputs" in floating.note
    assert floating.metrics["params"].value <= 0.6 * sum(one.numel() for one in zoo.digits_cnn().parameters())
    assert floating.metrics["size_ratio"].value < 0.7


def test_the_ledger_tells_the_round_and_keeps_the_rung(pruned):
    rows = {row.stage: row for row in pruned.report.ledger}
    assert list(rows) == ["ptq", "prune", "prune/round-1"]
    assert rows["prune"].kept
    assert "misses size_ratio" in rows["prune"].why
    assert "top1 on held-out samples 1.0000 whole" in rows["prune/round-1"].why


def test_the_folder_is_the_model_for_whoever_has_the_factory(pruned):
    folder = pruned.artefact("prune").parent
    net = zoo.digits_cnn(pretrained=False)
    load_(net, folder)
    images = zoo.digits()["select"][0][:64]
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    served = session.run(None, {session.get_inputs()[0].name: images})[0]
    here = outputs_of(net, {"input": images})["output"].numpy()
    np.testing.assert_allclose(here, served, rtol=1e-4, atol=1e-4)
    assert {"structure.json", "model.safetensors", "model.onnx"} <= {path.name for path in folder.iterdir()}


def test_a_killed_fine_tuning_ends_with_the_same_weights(pruned, tmp_path):
    recipe, store = write_recipe(tmp_path, RECIPE), tmp_path / ".compress/store"
    shutil.copytree(pruned.output / ".compress", tmp_path / ".compress", ignore=MADE_BY_PRUNING)
    process = start([str(recipe)], tmp_path)
    while process.poll() is None and not list(store.glob("train-*/work/draft.onnx")):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    again = run_to_the_end(tmp_path)
    assert named(again, "prune").sha256 == named(pruned, "prune").sha256
    weights = [next(run.output.glob(".compress/store/train-*/model.safetensors")) for run in (again, pruned)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_plan_says_what_pruning_would_do(pruned, capsys):
    assert main(["plan", str(pruned.output / "digits.yaml"), "--output", str(pruned.output), "--json"]) == 0
    steps = {step["name"]: step for step in json.loads(capsys.readouterr().out)}
    assert "params to 0.6 of the whole, 4 epochs; finished by ptq" in steps["prune"]["why"]


def test_a_budget_out_of_reach_is_a_failed_candidate_with_the_reason(pruned, tmp_path, monkeypatch):
    shutil.copytree(pruned.output / ".compress", tmp_path / ".compress", ignore=MADE_BY_PRUNING)
    write_recipe(tmp_path, RECIPE.replace("keep: 0.6", "keep: 0.01"))
    process = start([str(tmp_path / "digits.yaml")], tmp_path)
    process.communicate(timeout=300)
    assert process.returncode == 1
    note = named(newest_report(tmp_path), "prune").note
    assert note.startswith("stages.prune.keep: 0.01 of the params cannot be reached")
