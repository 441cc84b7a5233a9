"""The digest of code: blind to words about the code, awake to the code."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compress import code

Digest = Callable[[], str]
BASE = '''"""Module."""
from pack.lower import helper
from pack import other


def f(x):
    """Doc."""
    # comment
    return helper(x) + 1
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "pack"
    (root / "deep").mkdir(parents=True)
    (root / "top.py").write_text(BASE)
    (root / "lower.py").write_text("import os\nfrom pack.deep.leaf import VALUE\ndef helper(x): return x * VALUE\n")
    (root / "other.py").write_text("import pack.top\nA = 1\n")
    (root / "alone.py").write_text("B = 1\n")
    (root / "deep" / "__init__.py").write_text("")
    (root / "deep" / "leaf.py").write_text("VALUE = 2\n")
    monkeypatch.setattr(code, "ROOT", root)
    monkeypatch.setattr(code, "PACKAGE", "pack")
    clear()
    yield root
    clear()


def clear() -> None:
    code.code_digest.cache_clear()
    code._imports.cache_clear()


def digest() -> str:
    clear()
    return code.code_digest("pack.top")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# comment", "# something else"),
        ('"""Doc."""', '"""Other words, \\d."""'),
        ('"""Module."""\n', ""),
        ("\n\n\n", "\n\n\n\n\n"),
        ("helper(x) + 1", "(helper(x)\n        + 1)"),
    ],
)
def test_words_and_layout_do_not_count(package: Path, old: str, new: str):
    before = digest()
    (package / "top.py").write_text(BASE.replace(old, new))
    assert digest() == before


@pytest.mark.parametrize(
    ("old", "new"), [("+ 1", "+ 2"), ("def f(x)", "def f(x, y=0)"), ("return", "yield"), ("helper(x)", "helper('x')")]
)
def test_code_counts(package: Path, old: str, new: str):
    before = digest()
    (package / "top.py").write_text(BASE.replace(old, new))
    assert digest() != before


@pytest.mark.parametrize("name", ["lower.py", "other.py", "deep/leaf.py"])
def test_a_change_in_anything_imported_counts(package: Path, name: str):
    before = digest()
    (package / name).write_text((package / name).read_text() + "CHANGED = 1\n")
    assert digest() != before


def test_an_import_inside_a_function_counts(package: Path):
    (package / "deep" / "leaf.py").write_text("def lazy():\n    from pack import alone\n")
    before = digest()
    (package / "alone.py").write_text("B = 2\n")
    assert digest() != before


def test_a_module_not_imported_does_not_count(package: Path):
    before = digest()
    (package / "alone.py").write_text("B = 2\n")
    assert digest() == before


def test_a_string_that_is_no_docstring_counts(tmp_path: Path):
    texts = ['X = "a"\n', 'X = "b"\n']
    found = []
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.py").write_text(text)
        found.append(code.source_digest(tmp_path / f"{number}.py"))
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "data", [b"# -*- coding: latin-1 -*-\nX = '\xe9'\n", "\ufeffX = 'é'\n".encode(), b"X = '\\d'\n", b""]
)
def test_any_source_that_python_reads_has_a_digest(tmp_path: Path, data: bytes):
    (tmp_path / "user.py").write_bytes(data)
    assert len(code.source_digest(tmp_path / "user.py")) == 64


def test_this_package_imports_by_full_name_so_that_no_import_is_missed():
    clear()
    for path in Path(code.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level] == [], path


def test_a_stage_depends_on_what_it_calls():
    clear()
    assert {"compress.measure.stats", "compress.metrics", "compress.errors"} <= code._closure(
        "compress.measure.accuracy"
    )
