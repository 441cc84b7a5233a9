"""What must answer at once imports nothing heavy."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = {"torch", "onnx", "onnxruntime", "scipy", "matplotlib", "sklearn", "datasets", "transformers"}
MODULES = ["compress.errors", "compress.recipe.load", "compress.store", "compress.cli.app", "compress.__main__"]
REPORT = "\nimport sys, json; print('LOADED', json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
RECIPE = """\
schema: 1
name: lean
model: {ref: "lean_model:build"}
data: {ref: "lean_model:splits"}
gates: [{metric: speedup, min: 1.5}]
stages: [ptq]
"""


def loaded_by(code: str, folder: Path) -> tuple[set[str], str]:
    """Top-level modules that a fresh interpreter holds after `code`, and what it printed before."""
    ran = subprocess.run([sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True, cwd=folder)
    printed, _, modules = ran.stdout.rpartition("LOADED ")
    return set(json.loads(modules)), printed


@pytest.mark.parametrize("module", [name for name in MODULES if find_spec(name)])
def test_a_lean_module_imports_nothing_heavy(module: str, tmp_path: Path):
    loaded, _ = loaded_by(f"import {module}", tmp_path)
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("arguments", [["--help"], ["ls"], ["check", "x.yaml"], ["schema", "recipe"], ["check", "-h"]])
def test_a_quick_verb_imports_nothing_heavy(arguments: list[str], tmp_path: Path):
    (tmp_path / "lean_model.py").write_text("import torch\nbuild = splits = print\n")
    (tmp_path / "x.yaml").write_text(RECIPE)
    loaded, printed = loaded_by(f"from compress.__main__ import main\nassert main({arguments!r}) == 0", tmp_path)
    assert loaded & HEAVY == set()
    assert "lean_model" not in loaded
    assert printed


def test_the_check_would_see_a_heavy_module(tmp_path: Path):
    loaded, _ = loaded_by("import scipy", tmp_path)
    assert loaded & HEAVY == {"scipy"}
