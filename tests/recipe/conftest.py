"""A folder with a user's module in it, and a recipe that is right."""

from pathlib import Path

import pytest

MODULE = """
import torch_is_never_imported_by_check

def build(width=8):
    return None

def splits():
    return {}

def f1(outputs, labels):
    return outputs

class Net:
    pass

CONSTANT = 3
"""

RECIPE = """\
schema: 1
name: mine
model:
  ref: mymodel:build
data: {ref: "mymodel:splits"}
metric: top1
target:
  threads: 2
gates:
  - {metric: top1, max_drop: 0.01}
  - {metric: speedup, min: 1.5}
stages:
  - ptq
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mymodel.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def recipe_text() -> str:
    return RECIPE


@pytest.fixture
def recipe_file(folder: Path) -> Path:
    """x.yaml in the current folder, named relatively, as a user would."""
    (folder / "x.yaml").write_text(RECIPE)
    return Path("x.yaml")
