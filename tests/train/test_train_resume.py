"""kill -9 in the middle of training; what goes on from the checkpoint ends with the same bits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from training import net, task

from compress.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from compress.train.loop import train
from compress.train.plan import TrainPlan
from compress.train.progress import Watch

HERE = Path(__file__).parent
SCRIPT = """
import sys, time
from pathlib import Path
from test_train_resume import run
print("ready", flush=True)
run(Path(sys.argv[1]), float(sys.argv[2]))
"""


def run(folder: Path, seconds_per_step: float) -> None:
    """Train a small net in one thread; slow enough to be hit, it tells every step and saves after each."""

    def update(done: int, _total: int, _text: str) -> None:
        print(done, flush=True)
        time.sleep(seconds_per_step)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = net(dropout=0.3)
    plan = TrainPlan(
        epochs=4, batch_size=16, learning_rate=0.02, freeze_norm_epoch=3,
        checkpoint_seconds=0.0 if seconds_per_step else 1e9,
    )  # fmt: skip
    train(task(model), plan, folder / "work", Watch(update=update))
    save_file(model.state_dict(), folder / "final.safetensors")
    torch.set_num_threads(threads)


def start(folder: Path, seconds_per_step: float) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(seconds_per_step)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def kill_at(process: "subprocess.Popen[str]", step: int) -> None:
    """Read the steps it tells until `step`, and kill it there."""
    with process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.strip().isdigit() and int(line) >= step)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_training_goes_on_to_bit_identical_weights(tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    kill_at(start(killed, 0.02), 31)  # of 60, in the third epoch
    step = json.loads((killed / "work/state.json").read_text())["facts"]["step"]
    assert 29 <= step <= 32
    with start(killed, 0.0) as last:
        assert last.stdout is not None
        told = [int(line) for line in last.stdout if line.strip().isdigit()]
    assert last.returncode == 0
    assert told == list(range(step + 1, 61))  # it went on, it did not start again
    run(whole, 0.0)
    a, b = (load_file(folder / "final.safetensors") for folder in (whole, killed))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def checkpoint(value: float) -> Checkpoint:
    return Checkpoint(tensors={"model.w": torch.full((3,), value)}, facts={"step": 7, "loss": 0.1 + 0.2})


def test_a_checkpoint_comes_back_exactly_and_replaces_the_one_before(tmp_path: Path):
    save_checkpoint(tmp_path, 6, checkpoint(1.0))
    save_checkpoint(tmp_path, 7, checkpoint(2.0))
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert torch.equal(found.tensors["model.w"], torch.full((3,), 2.0))
    assert found.facts == {"step": 7, "loss": 0.1 + 0.2}
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_a_checkpoint_killed_between_its_two_files_leaves_the_one_before(tmp_path: Path):
    save_checkpoint(tmp_path, 6, checkpoint(1.0))
    save_file({"model.w": torch.zeros(3)}, tmp_path / "step-000000007.safetensors")
    found = load_checkpoint(tmp_path)
    assert found is not None
    assert torch.equal(found.tensors["model.w"], torch.ones(3))


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "pickle", "json", "outside"])
def test_a_damaged_checkpoint_counts_as_none(damage: str, tmp_path: Path):
    save_checkpoint(tmp_path, 6, checkpoint(1.0))
    path, state = next(tmp_path.glob("*.safetensors")), tmp_path / "state.json"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-4])
    elif damage == "gone":
        path.unlink()
    elif damage == "pickle":
        torch.save({"model.w": torch.zeros(3)}, path)
    elif damage == "json":
        state.write_text("[1, 2]")
    else:
        elsewhere = tmp_path.parent / "elsewhere.safetensors"
        elsewhere.write_bytes(content)
        path.unlink()
        state.write_text(state.read_text().replace(path.name, f"../{elsewhere.name}"))
    assert load_checkpoint(tmp_path) is None
