"""The recipes that come with the package: `recipes/` of a source checkout, `compress/_recipes` of a wheel."""

from dataclasses import dataclass
from pathlib import Path

from compress.recipe.words import closest

# What to start from when nothing else is known.
FIRST = "int8"
SCHEMA_FILE = "recipe.schema.json"
SCHEMA_COMMENT = "# yaml-language-server: $schema="


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """about: the opening comment, a line each: aim, cost, measured result."""

    name: str
    path: Path
    about: tuple[str, ...]


def packaged_folder() -> Path:
    """The wheel's folder where there is one, else the checkout's."""
    package = Path(__file__).parent.parent
    installed = package / "_recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def list_packaged() -> tuple[Packaged, ...]:
    """In the order of their names."""
    return tuple(_describe(path) for path in sorted(packaged_folder().glob("*.yaml"), key=lambda path: path.stem))


def find_recipe(argument: str) -> Path:
    """A file, or else the packaged recipe of that name. An unknown name comes back as a path."""
    path = Path(argument)
    packaged = {recipe.name: recipe.path for recipe in list_packaged()}
    if path.is_file() or argument not in packaged:
        return path
    found = packaged[argument]
    here = Path.cwd()
    return found.relative_to(here) if found.is_relative_to(here) else found


def hint_at_packaged(missing: Path) -> str:
    """What to do about a recipe that is not there."""
    names = [recipe.name for recipe in list_packaged()]
    if not names:
        return "Check the path"
    meant = closest(missing.stem, names) or (FIRST if FIRST in names else names[0])
    return f"Packaged recipes: {', '.join(names)}. Copy one with: compress cp {meant} ."


def _describe(path: Path) -> Packaged:
    lines = path.read_text(encoding="utf-8").splitlines()
    opening = []
    for line in lines:
        if not line.startswith("#"):
            break
        opening.append(line)
    about = (line.lstrip("# ").rstrip() for line in opening if not line.startswith(SCHEMA_COMMENT))
    return Packaged(name=path.stem, path=path, about=tuple(line for line in about if line))
