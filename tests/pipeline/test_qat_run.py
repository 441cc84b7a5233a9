"""A whole run that trains: three-bit weights fail without training and pass with it; the control says what it cost."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from running import Run, newest_report, start, write_recipe

from compress import zoo
from compress.__main__ import main
from compress.files import sha256_of
from compress.quantize.points import read_points
from compress.report.strict import unknown_keys

RECIPE = """\
schema: 1
name: digits
model: {ref: "compress.zoo:digits_cnn"}
data: {ref: "compress.zoo:digits", calibration_samples: 128}
gates:
  - {metric: top1, max_drop: 0.06}
  - {metric: size_ratio, max: 0.6}
stages:
  - ptq: {method: u8s8-tensor, weight_bits: 3}
  - qat: {epochs: 6, learning_rate: 0.003, batch_size: 32, weight_bits: 3}
"""
MADE_BY_TRAINING = shutil.ignore_patterns("train-*", "qat-*", "export-trained-*")
pytestmark = pytest.mark.slow


def run_to_the_end(folder: Path) -> Run:
    process = start([str(folder / "digits.yaml")], folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return newest_report(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("trained")
    write_recipe(folder, RECIPE)
    return run_to_the_end(folder)


def by_stage(run: Run, stage: str):
    return next(candidate for candidate in run.report.candidates if candidate.stage == stage)


def test_training_recovers_what_rounding_lost(trained):
    rounded, learned = by_stage(trained, "ptq"), by_stage(trained, "qat")
    assert (rounded.outcome, learned.outcome) == ("fail", "pass")
    assert learned.metrics["top1"].value > rounded.metrics["top1"].value
    assert trained.report.winner == learned.name == "qat/u8s8-tensor-w3"
    assert "against ptq/u8s8-tensor-w3 (paired on 349 samples of select" in learned.note
    assert "serves what was trained" in learned.note
    assert [key for key in unknown_keys(trained.report) if not key.startswith("analysis.")] == []


def test_the_ledger_holds_the_control(trained):
    rows = {row.stage: row for row in trained.report.ledger}
    assert list(rows) == ["ptq", "qat", "qat/control"]
    control = rows["qat/control"]
    assert "150 steps of the same training without rounding: top1 0.9" in control.why
    assert "qat/u8s8-tensor-w3 reaches 0.9" in control.why
    assert not control.kept
    assert rows["qat"].kept
    assert "misses top1" in rows["qat"].why


def test_the_score_is_that_of_the_three_bit_file(trained):
    path = trained.folder / "export/model.onnx"
    values = {item.name: item for item in onnx.load(path).graph.initializer}
    weights = [numpy_helper.to_array(values[one.quantized]).astype(int) for one in read_points(path).weights]
    assert len(weights) == 5
    assert all(np.abs(weight).max() <= 3 for weight in weights)
    images, labels = zoo.digits()["select"]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    right = session.run(None, {session.get_inputs()[0].name: images})[0].argmax(axis=1) == labels
    assert by_stage(trained, "qat").metrics["top1"].value == pytest.approx(right.mean())


def test_a_killed_training_ends_with_the_same_file(trained, tmp_path):
    """Killed between the training and its deployment; what was made before the qat stage is taken over."""
    recipe, store = write_recipe(tmp_path, RECIPE), tmp_path / ".compress/store"
    shutil.copytree(trained.output / ".compress", tmp_path / ".compress", ignore=MADE_BY_TRAINING)
    process = start([str(recipe)], tmp_path)
    while process.poll() is None and not list(store.glob("train-*/done.json")):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    again = run_to_the_end(tmp_path)
    assert by_stage(again, "qat").sha256 == by_stage(trained, "qat").sha256
    records = [json.loads(path.read_text()) for path in store.glob("train-*/train.json")]
    assert {record["steps"] for record in records} == {150}
    assert all(record["step_ms"] > 0 and len(record["epochs"]) == 6 for record in records)


def test_a_second_run_trains_nothing_again(trained, tmp_path):
    before = {path: sha256_of(path) for path in trained.output.glob(".compress/store/train-*/*.safetensors")}
    assert len(before) == 2
    # In a process of its own, as before: the number of threads is part of what makes the weights what they are.
    run_to_the_end(trained.output)
    assert {path: sha256_of(path) for path in trained.output.glob(".compress/store/train-*/*.safetensors")} == before


def test_the_plan_says_what_training_would_take(trained, capsys):
    assert main(["plan", str(trained.output / "digits.yaml"), "--output", str(trained.output), "--json"]) == 0
    steps = {step["name"]: step for step in json.loads(capsys.readouterr().out)}
    assert "6 epochs, then as many for the float model as a control" in steps["qat"]["why"]
    assert not steps["qat"]["guessed"]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ("del s['train']", "the data gives no split 'train', which qat learns from"),
        ("x, y = s['train']; s['train'] = (x[:12], y[:12])", "split 'train' holds 12 samples"),
        ("x, y = s['train']; s['train'] = (x, y * 0)", "split 'train': every label is 0"),
        ("x, y = s['train']; s['train'] = (x, y + 7)", "outside [0, 9]"),
    ],
)
def test_data_that_cannot_train_is_told_before_anything_runs(change, fact, tmp_path, monkeypatch, capfd):
    module = f"user_{abs(hash(fact))}"
    code = f"from compress import zoo\ndef splits():\n  s = dict(zoo.digits())\n  {change}\n  return s\n"
    (tmp_path / f"{module}.py").write_text(code)
    recipe = write_recipe(tmp_path, RECIPE.replace('compress.zoo:digits"', f'{module}:splits"'))
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(recipe)]) == 2
    assert fact in capfd.readouterr().err
    assert not list(tmp_path.glob("runs/*/*"))
