"""What a user can get wrong beside the recipe: one line, an exit code, nothing left half done."""

import errno
from pathlib import Path

import pytest
from running import write_recipe

import compress.files
from compress.__main__ import main

GOOD = """
import numpy as np, torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def splits():
    from compress import zoo
    return dict(zoo.digits())
"""
RECIPE = """\
schema: 1
name: bad
model: {{ref: "{module}:build"}}
data: {{ref: "{module}:splits", calibration_samples: 32}}
gates:
  - {{metric: top1, max_drop: 0.05}}
stages:
  - ptq
"""


def splits_with(change: str) -> str:
    return f"def splits():\n  s = dict(zoo().digits())\n  {change}\n  return s"


def split_with(name: str, inputs: str = "x", labels: str = "y") -> str:
    return splits_with(f"x, y = s['{name}']; s['{name}'] = ({inputs}, {labels})")


def put(name: str, at: str, value: str) -> str:
    return splits_with(f"x, y = s['{name}']; x = x.copy(); x[{at}] = {value}; s['{name}'] = (x, y)")


def module_with(result: str) -> str:
    return f"class M(nn.Module):\n  def forward(self, x): return {result}\nbuild = M"


# Name: what the user's module does, the exit code, what the line says.
BAD = {
    "not_a_module": ("def build(): return 3", 2, "returned int, not a torch.nn.Module"),
    "raises_when_built": ("def build(): raise ValueError('no\\nway')", 2, "raised ValueError: no"),
    "raises_on_import": ("1 / 0", 2, "ZeroDivisionError"),
    "exits_on_import": ("raise SystemExit(3)", 2, "calls exit(3) on import"),
    "needs_an_argument": ("def build(width): return None", 2, "raised TypeError"),
    "other_shapes": (
        "def build(): return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))",
        2,
        "forward refuses a batch",
    ),
    "no_batch_axis": (module_with("x.sum()"), 2, "for a batch of 4"),
    "gives_nan": (module_with("x.flatten(1) / 0 * 0"), 2, "NaN or infinity"),
    "returns_none": (module_with("None"), 2, "without a tensor"),
    "labels_beyond": (split_with("select", labels="y + 5"), 2, "outside [0, 9]"),
    "labels_below": (split_with("confirm", labels="y - 1"), 2, "label -1"),
    "labels_are_floats": (split_with("select", labels="y / 1"), 2, "whole number"),
    "one_class_only": (split_with("select", labels="y * 0"), 2, "every label is 0"),
    "at_chance": ("", 1, "chance is"),
    "nan_in_calibration": (put("calibration", "7, 0, 0, 0", "np.nan"), 2, "'calibration', sample 7, input: 1 NaN"),
    "inf_in_select": (put("select", "3", "np.inf"), 2, "split 'select', sample 3, input: 64 inf"),
    "empty_calibration": (split_with("calibration", "x[:0]", "y[:0]"), 2, "split 'calibration' is empty"),
    "few_for_calibration": (split_with("calibration", "x[:8]", "y[:8]"), 2, "holds 8"),
    "leak": (put("select", "5", "s['train'][0][9]"), 2, "1 samples of 'select' also stand in 'train' (sample 5)"),
    "other_range": (split_with("calibration", "x * 255"), 2, "spans"),
    "other_layout": (split_with("calibration", "x.transpose(0, 2, 3, 1)"), 2, "but 'select' has"),
    "no_mapping": ("def splits(): return [1, 2]", 2, "returned list"),
    "unknown_split": ("def splits(): return {'trian': (np.zeros((4, 1)), np.zeros(4))}", 2, "unknown split 'trian'"),
    "missing_split": (splits_with("del s['confirm']"), 2, "no samples for split 'confirm'"),
    "lengths_differ": (split_with("select", labels="y[:-1]"), 2, "different lengths"),
}
HELPER = "\ndef zoo():\n    from compress import zoo\n    return zoo\n"


# What a run tells on its way, before a baseline can be judged.
PROGRESS = ("[", "model: ", "verdict: ", "methods: ", "advice: ", "measuring this machine")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_input_ends_in_one_line(name, tmp_path, monkeypatch, capfd):
    code, exit_code, fact = BAD[name]
    module = f"user_{name}"
    (tmp_path / f"{module}.py").write_text(GOOD + HELPER + code + "\n")
    recipe = write_recipe(tmp_path, RECIPE.format(module=module))
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(recipe)]) == exit_code
    errors = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(PROGRESS)]
    assert len(errors) == 1, errors
    assert fact in errors[0]
    assert not list(tmp_path.glob("runs/*/*/report.json"))


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (None, "no file 'w.safetensors'"),
        (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
        (lambda path: path.write_bytes(b"\x80\x04." * 40), "not a whole safetensors file"),
        (lambda path: _save(path, bias=(3,), weight=(10, 64)), "'1.bias' is [3], the model wants [10]"),
        (lambda path: _save(path, weight=(10, 64)), "missing '1.bias'"),
        (lambda path: _save(path, bias=(10,), weight=(10, 64), extra=(1,)), "unexpected '1.extra'"),
    ],
)
def test_weights_that_do_not_fit_are_named(make, fact, tmp_path, monkeypatch, capfd):
    module = f"user_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(GOOD)
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"")
    text = RECIPE.format(module=module).replace(':build"}', ':build", weights: w.safetensors}')
    recipe = write_recipe(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    if make is None:
        weights.unlink()
    else:
        make(weights)
    assert main(["run", str(recipe)]) == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("[")]
    assert len(errors) == 1
    assert fact in errors[0]


def _save(path: Path, **shapes: tuple[int, ...]) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({f"1.{name}": torch.zeros(shape) for name, shape in shapes.items()}, path)


def test_an_output_folder_that_is_a_file_is_an_environment_problem(tmp_path, capfd):
    (tmp_path / "out").write_text("mine")
    recipe = write_recipe(
        tmp_path, RECIPE.format(module="compress.zoo").replace(":build", ":digits_cnn").replace(":splits", ":digits")
    )
    assert main(["run", str(recipe), "--output", str(tmp_path / "out")]) == 3
    assert "cannot be written" in capfd.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("after", [0, 3, 8, 13])
def test_a_full_disk_leaves_no_half_file_and_the_next_run_ends_well(after, head_start, monkeypatch, capfd):
    recipe = write_recipe(head_start)
    real, calls = compress.files._sync, iter(range(10_000))

    def full(path: Path) -> None:
        if next(calls) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(compress.files, "_sync", full)
        code = main(["run", str(recipe), "--output", str(head_start)])
        errors = capfd.readouterr().err
    assert code == 3
    assert "no space left on the disk" in errors
    assert "Traceback" not in errors
    assert not list(head_start.rglob(".writing-*"))
    assert main(["run", str(recipe), "--output", str(head_start)]) == 0


def test_an_early_lack_of_space_is_told_before_anything_starts(head_start, monkeypatch, capfd):
    monkeypatch.setattr(compress.files.shutil, "disk_usage", lambda _: type("U", (), {"free": 1_000_000})())
    assert main(["run", str(write_recipe(head_start)), "--output", str(head_start)]) == 3
    assert "1 MB are free" in capfd.readouterr().err
