"""Imports go down only: the table of docs/design/house.md, held against every import in the package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import compress

PACKAGE = Path(compress.__file__).parent
LEVELS = {
    9: ("cli", "__main__"),
    8: ("pipeline", "planning"),
    7: ("report",),
    6: ("ladder", "stages"),
    5: ("gate", "probe"),
    4: ("analyze", "quantize", "prune", "distill", "train", "serve"),
    3: ("measure", "export"),
    2: ("recipe", "store", "candidate", "metrics", "data", "device", "zoo", "runs"),
    1: ("files", "code"),
    0: ("errors", "__init__"),
}
LEVEL_OF = {module: level for level, modules in LEVELS.items() for module in modules}
# Imports inside one level, from one module to another, each with its reason.
SIDEWAYS = {
    ("__main__", "cli"),  # the way in starts the command line
    ("metrics", "data"),  # a metric is over arrays of a split
}


def imports_of(source: str, package: str) -> Iterator[str]:
    """Full names of our own modules that the source imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def ours(names: Iterator[str]) -> set[str]:
    """The rooms that these names lead to: `compress.recipe.spec.Recipe` -> recipe."""
    rooms = set()
    for name in names:
        parts = name.split(".")
        if parts[0] == "compress":
            rooms.add(parts[1] if len(parts) > 1 and parts[1] in LEVEL_OF else "__init__")
    return rooms


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_allowed(user: str, used: str) -> bool:
    return user == used or LEVEL_OF[used] < LEVEL_OF[user] or (user, used) in SIDEWAYS


FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_recipes" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_below(path: Path):
    user = room_of(path)
    assert user in LEVEL_OF, f"{user} has no level: add it here and to docs/design/house.md"
    package = ".".join(["compress", *path.relative_to(PACKAGE).parent.parts])
    used = ours(imports_of(path.read_text(encoding="utf-8"), package))
    assert {room for room in used if not is_allowed(user, room)} == set()


def test_the_check_sees_imports_wherever_they_hide():
    source = """
def lazy():
    from compress.cli import app
    from . import spec
    from .. import errors
import compress.pipeline
from compress import ladder, __version__
"""
    assert ours(imports_of(source, "compress.recipe")) == {"cli", "recipe", "errors", "pipeline", "ladder", "__init__"}


def test_imports_upwards_and_sideways_are_refused():
    assert is_allowed("cli", "recipe")
    assert not is_allowed("recipe", "cli")
    assert not is_allowed("recipe", "store")
    assert not is_allowed("cli", "__main__")


def test_the_table_is_the_one_in_the_design():
    page = PACKAGE.parent / "docs" / "design" / "house.md"
    if not page.exists():
        pytest.skip("the docs do not come with an installed package")
    rows = [line.split("|") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    table = {cells[1].strip(): cells[2] for cells in rows if cells[1].strip().isdigit()}
    for level, modules in LEVELS.items():
        assert [module for module in modules if module != "__init__" and f"`{module}`" not in table[str(level)]] == []
