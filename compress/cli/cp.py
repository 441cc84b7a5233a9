"""`compress cp`: start from a recipe that comes with the package."""

from pathlib import Path
from typing import Annotated

import typer

from compress.cli.ls import Name, packaged_named
from compress.cli.output import emit
from compress.errors import InputError
from compress.files import write_text


def cp(
    name: Name,
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="A folder or a file.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Copy a recipe that comes with the package, to make it yours.

    \b
    compress cp int8
    compress cp int8 recipes/mine.yaml
    compress cp int8 --force
    """
    recipe = packaged_named(name)
    target = dest / f"{recipe.name}.yaml" if dest.is_dir() else dest
    if target.is_dir():
        raise InputError(str(target), "a folder has this name", "Name another file")
    if not target.parent.is_dir():
        raise InputError(str(target), "its folder does not exist", "Make the folder first, or name another place")
    if target.exists() and not force:
        raise InputError(str(target), "the file exists", "Name another, or overwrite it with --force")
    write_text(target, _with_schema_of(recipe.path))
    emit(str(target))


def _with_schema_of(recipe: Path) -> str:
    """The recipe's text, its schema comment pointing at the schema that is installed: the copy has none beside it."""
    from compress.recipe.packaged import SCHEMA_COMMENT, SCHEMA_FILE

    text = recipe.read_text(encoding="utf-8")
    schema = (recipe.parent / SCHEMA_FILE).resolve().as_uri()
    return text.replace(f"{SCHEMA_COMMENT}{SCHEMA_FILE}", f"{SCHEMA_COMMENT}{schema}", 1)
