"""References to the user's own code, `package.module:function`: found by reading, and imported when needed."""

import ast
import importlib
import importlib.util
import keyword
import os
import sys
import sysconfig
import tokenize
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from compress.errors import InputError
from compress.recipe.words import one_line, show_value, suggest

_EXAMPLE = "Write it like mymodel:build"
_LOOKED_IN = "looked in: current folder, the recipe's folder, installed packages"


def search_folders(recipe: Path) -> tuple[Path, Path]:
    """Where references are looked up before the installed packages: the current folder, then the recipe's."""
    return Path.cwd(), recipe.absolute().parent


def find_ref(ref: str, search_path: Sequence[Path]) -> Path | None:
    """The file that holds `ref`, by reading alone: nothing is imported, so nothing of the user's runs.

    search_path: folders that come before sys.path. None where there is no source to read (built-in, compiled).
    Raises InputError: not a reference, no such module, syntax error in it, no such name in it.
    """
    module, name = _split(ref)
    spec = _find_module(ref, module, search_path)
    if spec.origin is None or not spec.has_location:
        if spec.submodule_search_locations is not None:
            fact = f"'{module}' is a folder without __init__.py, so it holds no '{name}'"
            raise InputError(ref, fact, "Name the module inside it")
        return None
    path = Path(spec.origin)
    if path.suffix != ".py":
        return None
    names, complete = _top_level_names(ref, path)
    if complete and name not in names:
        raise InputError(ref, f"no '{name}' in {_short(path)}", suggest(name, _public(names), label="It has"))
    return path


def load_ref(ref: str, search_path: Sequence[Path]) -> Callable[..., Any]:
    """Import the module and return the callable.

    search_path: folders put before sys.path while the module is imported.
    Raises InputError: as find_ref; the module fails on import (with its file and line); the name is not callable.
    KeyboardInterrupt passes through.
    """
    module, name = _split(ref)
    path = find_ref(ref, search_path)
    _refuse_stranger(ref, module, path)
    loaded = _import(module, search_path)
    try:
        found = getattr(loaded, name)
    except AttributeError:
        remedy = suggest(name, _public(vars(loaded)), label="It has")
        raise InputError(ref, f"no '{name}' in module '{module}'", remedy) from None
    if not callable(found):
        raise InputError(
            ref, f"'{name}' is of type {type(found).__name__}, not a function", "Name a function or a class"
        )
    return found


def _split(ref: str) -> tuple[str, str]:
    module, colon, name = ref.partition(":")
    if not colon:
        parent, _, last = ref.rpartition(".")
        remedy = f"Did you mean '{parent}:{last}'?" if parent and _is_dotted(ref) else _EXAMPLE
        raise InputError(one_line(ref), f"{show_value(ref)} is not package.module:function", remedy)
    if module.endswith(".py"):
        meant = module.removesuffix(".py").replace("/", ".").lstrip(".")
        remedy = f"Write '{meant}:{name}'" if _is_dotted(meant) else _EXAMPLE
        raise InputError(one_line(ref), f"{show_value(module)} is a file, and a reference names a module", remedy)
    if not _is_dotted(module) or not _is_dotted(name) or "." in name:
        raise InputError(one_line(ref), f"{show_value(ref)} is not package.module:function", _EXAMPLE)
    if module == "__main__":
        raise InputError(ref, "another process cannot find __main__ again", "Put the function in a .py file")
    return module, name


def _public(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("_"))


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in text.split("."))


def _find_module(ref: str, module: str, search_path: Sequence[Path]) -> ModuleSpec:
    """Like the import system, but a parent package is read from its place instead of being run."""
    importlib.invalidate_caches()
    first, *rest = module.split(".")
    spec = _find_top(first, search_path)
    for depth, part in enumerate(rest, start=1):
        locations = spec and spec.submodule_search_locations
        # The bare name: with the dotted one, a namespace package would ask for its parent in sys.modules.
        spec = PathFinder.find_spec(part, list(locations)) if locations else None
        if spec is None:
            missing = ".".join([first, *rest[:depth]])
            raise InputError(ref, f"no module named '{missing}' on the path ({_LOOKED_IN})", "Check the spelling")
    if spec is None:
        raise InputError(ref, f"no module named '{first}' on the path ({_LOOKED_IN})", "Check the spelling")
    return spec


def _find_top(name: str, search_path: Sequence[Path]) -> ModuleSpec | None:
    own = sys.modules[__name__.partition(".")[0]].__spec__
    if own and name == own.name:  # already imported, so no folder of the user's can stand before it
        return own
    spec = PathFinder.find_spec(name, [*map(str, search_path), *sys.path])
    if spec is not None:
        return spec
    try:  # built-in modules, and editable installs with a finder of their own
        return importlib.util.find_spec(name)
    except (ValueError, ImportError):
        return None


def _top_level_names(ref: str, path: Path) -> tuple[set[str], bool]:
    """The names a module binds, and whether these are all (no star import, no module `__getattr__`)."""
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's source; importing it will say so again
            tree = ast.parse(file.read(), filename=str(path))
    except SyntaxError as error:
        where = f"{_short(path)}:{error.lineno}:{error.offset}" if error.lineno else _short(path)
        raise InputError(ref, f"{where} is not valid Python: {error.msg}", "Fix the file") from None
    except (OSError, ValueError) as error:
        raise InputError(ref, f"{_short(path)} cannot be read: {error}", "Fix the file") from None
    names = set(_bound_names(tree))
    return names, not names & {"*", "__getattr__"}


def _bound_names(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif not isinstance(child, ast.Lambda):
            yield from _bound_names(child)


def _refuse_stranger(ref: str, module: str, path: Path | None) -> None:
    """Python keeps one module per name: an earlier import from elsewhere would be used in silence."""
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if path is not None and loaded is not None and not os.path.samefile(loaded, path):
        fact = f"another '{module}' is already imported, from {_short(Path(loaded))}"
        raise InputError(ref, fact, f"Rename one of them, or start a new process for {_short(path)}")


def _import(module: str, search_path: Sequence[Path]) -> ModuleType:
    try:
        with _on_import_path(search_path):
            return importlib.import_module(module)
    except SystemExit as error:
        place = _raised_at(error)
        raise InputError(place, f"calls exit({error.code!r}) on import", "Put that under `if __name__`") from error
    except Exception as error:
        message = " ".join(str(error).split())
        fact = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise InputError(_raised_at(error), fact, f"Importing '{module}' must work") from error


@contextmanager
def _on_import_path(folders: Sequence[Path]) -> Iterator[None]:
    before = sys.path[:]
    sys.path[:0] = dict.fromkeys(map(str, folders))
    try:
        yield
    finally:
        sys.path[:] = before


def _raised_at(error: BaseException) -> str:
    """The last line of the user's own that ran: below it are only the libraries it called."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if _is_users(frame.filename)]
    frame = (own or frames)[-1]
    return f"{_short(Path(frame.filename))}:{frame.lineno}"


def _is_users(file: str) -> bool:
    libraries = (Path(os.__file__).parent, Path(sysconfig.get_path("purelib")), Path(__file__).parent.parent)
    return not any(Path(file).is_relative_to(folder) for folder in libraries)


def _short(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
