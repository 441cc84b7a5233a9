"""Digest of the code a step runs: its module and all it imports from this package, blind to comments and docstrings."""

import ast
import functools
import hashlib
import warnings
from pathlib import Path

ROOT = Path(__file__).parent
PACKAGE = ROOT.name


@functools.cache
def code_digest(module: str) -> str:
    """module: dotted name inside this package, e.g. `compress.stages.ptq`."""
    digest = hashlib.sha256()
    for name in sorted(_closure(module)):
        digest.update(name.encode() + b"\0" + source_digest(_file_of(name)).encode() + b"\0")
    return "sha256:" + digest.hexdigest()


def source_digest(path: Path) -> str:
    """Digest of one source file by its syntax tree, so that comments, blank lines and docstrings do not count."""
    tree = _tree(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _drop_docstring_(node)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _tree(path: Path) -> ast.Module:
    """Parsed from bytes, so that a coding line or a byte-order mark is honoured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the source; importing it will say so again
        return ast.parse(path.read_bytes(), filename=str(path))


def _drop_docstring_(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]


def _closure(module: str) -> set[str]:
    seen: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += _imports(name)
    return seen


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    found = []
    for node in ast.walk(_tree(_file_of(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            candidates = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            found += [name for name in candidates if _is_module(name)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE]
    return tuple(dict.fromkeys(found))


def _is_module(name: str) -> bool:
    return _file_of(name).is_file()


def _file_of(module: str) -> Path:
    path = ROOT.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
