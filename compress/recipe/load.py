"""A recipe file to a checked recipe. Every problem is told with `file:line:column: key.path: fact. remedy.`"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.errors import RecipeError
from compress.recipe.document import Document, read_document
from compress.recipe.explain import explain, written_path
from compress.recipe.meaning import find_contradictions
from compress.recipe.overrides import Overridden, apply_overrides
from compress.recipe.packaged import hint_at_packaged
from compress.recipe.places import Places, Problem
from compress.recipe.refs import search_folders
from compress.recipe.spec import Recipe
from compress.recipe.stages import WrittenStages, normalise_stages, write_stage
from compress.recipe.words import KeyPath, show_value

# A recipe is a page or two; a larger file is something else, and reading it all would take minutes.
_LARGEST_BYTES = 256 * 1024
_STEP = re.compile(r"\[(\d+)\]|([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class LoadedRecipe:
    """A checked recipe and where it came from.

    text: the file as it is, without overrides; digest: `sha256:...` of the checked recipe with its defaults and
    overrides, so comments, key order and spelled-out defaults do not change it.
    """

    recipe: Recipe
    path: Path
    text: str
    digest: str
    overrides: tuple[str, ...]
    places: Places
    bodies: tuple[KeyPath, ...]

    @property
    def folder(self) -> Path:
        """What relative paths in the recipe count from."""
        return self.path.parent

    def place(self, key_path: str) -> str:
        """`gates[1].min` or `stages[0].method` -> `file:line:column: key.path` (or `--set key` where that wrote it)."""
        path: KeyPath = tuple(int(index) if index else name for index, name in _STEP.findall(key_path))
        as_written = any(path[: len(body)] == body for body in self.bodies if len(body) > 2)
        return self.places.of(path if as_written else written_path(path, self.bodies))


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """Read, override and check a recipe. Nothing of the user's is imported and nothing is written.

    overrides: `key.path=value`, value in YAML. Raises RecipeError holding every problem found, in file order.
    """
    path = Path(path)
    text = _read_text(path)
    document = read_document(text)
    _check_root(document, str(path))
    changed = apply_overrides(document.data, overrides)
    stages, data = _with_normal_stages(changed.data)
    places = Places(file=str(path), marks=document.marks, overrides=changed.written)
    recipe = _validate(data, stages, document, changed, places)
    contradictions = list(find_contradictions(recipe, stages.bodies, search_folders(path)))
    if contradictions:
        raise places.error(contradictions)
    return LoadedRecipe(
        recipe=recipe,
        path=path,
        text=text,
        digest=_digest(recipe),
        overrides=tuple(overrides),
        places=places,
        bodies=stages.bodies,
    )


def as_document(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain data that a user could have written, every default spelled out. Loading it gives it back."""
    return recipe.model_dump(mode="json", by_alias=True) | {"stages": [write_stage(stage) for stage in recipe.stages]}


def _digest(recipe: Recipe) -> str:
    canonical = json.dumps(as_document(recipe), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def _read_text(path: Path) -> str:
    if os.path.isdir(path):
        raise RecipeError(str(path), "this is a folder, not a recipe", "Name the .yaml file")
    try:
        with open(path, "rb") as file:
            raw = file.read(_LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise RecipeError(str(path), "no such file", hint_at_packaged(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecipeError(str(path), f"cannot be read: {reason}", "Check the path and its permissions") from None
    if len(raw) > _LARGEST_BYTES:
        raise RecipeError(str(path), f"larger than {_LARGEST_BYTES // 1024} KiB, so not a recipe", "Check the path")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        place = f"{path}:{line}:{column}"
        raise RecipeError(place, f"byte 0x{raw[error.start]:02x} is not UTF-8", "Save the file as UTF-8") from None


def _check_root(document: Document, file: str) -> None:
    places = Places(file=file, marks=document.marks, overrides={})
    if not document.readable:
        raise places.error(document.problems)
    if document.data is None and not document.problems:
        raise RecipeError(f"{file}:1:1", "the recipe is empty", "Start from one that works: compress cp int8 .")
    if not isinstance(document.data, dict):
        fact = f"a recipe is a mapping of keys, got {show_value(document.data)}"
        raise places.error(document.problems or [Problem(path=(), fact=fact, remedy="Start with: schema: 1")])


def _with_normal_stages(data: dict[str, Any]) -> tuple[WrittenStages, dict[str, Any]]:
    written = data.get("stages")
    if not isinstance(written, list):
        return WrittenStages(), data
    stages = normalise_stages(written)
    return stages, {**data, "stages": stages.items}


def _validate(
    data: Mapping[str, Any], stages: WrittenStages, document: Document, changed: Overridden, places: Places
) -> Recipe:
    problems = [*document.problems, *changed.problems, *stages.problems, *_schema_version(data)]
    # A value that YAML could not give us stands as None: what the schema says about that would only mislead.
    unread = tuple(problem.path for problem in document.problems if problem.mark is None)
    problems = [one for one in problems if one in document.problems or not _spoilt(one, unread)]
    try:
        recipe = Recipe.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        known = {problem.path for problem in problems if problem.path}
        found = explain(error, stages.bodies)
        problems += [one for one in found if one.path not in known and not _spoilt(one, unread)]
    if problems:
        raise places.error(problems)
    return recipe


def _spoilt(problem: Problem, unread: Sequence[KeyPath]) -> bool:
    path = problem.path
    inside = any(path[: len(section)] == section for section in unread)
    return inside or (problem.whole and any(section[: len(path)] == path for section in unread))


def _schema_version(data: Mapping[str, Any]) -> list[Problem]:
    """True and 1.0 equal 1, so the schema lets them by; a later version deserves a better answer."""
    version = data.get("schema", 1)
    if type(version) is int and version == 1:
        return []
    remedy = "Update compress" if isinstance(version, int) and version > 1 else "Write schema: 1"
    return [Problem(path=("schema",), fact=f"this version reads schema 1, got {show_value(version)}", remedy=remedy)]
