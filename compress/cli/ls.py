"""`compress ls` and `compress cat`: see the recipes that come with the package."""

from typing import TYPE_CHECKING, Annotated

import typer

from compress.cli.output import emit, emit_json
from compress.errors import InputError

if TYPE_CHECKING:
    from compress.recipe.packaged import Packaged

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `compress ls` prints.")]


def ls(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False) -> None:
    """List the recipes that come with the package.

    \b
    compress ls
    compress ls --json
    """
    from compress.recipe.packaged import list_packaged

    recipes = list_packaged()
    if as_json:
        emit_json([{"name": one.name, "path": str(one.path), "about": list(one.about)} for one in recipes])
    else:
        emit("\n".join(line for one in recipes for line in (one.name, *(f"    {text}" for text in one.about))))


def cat(name: Name) -> None:
    """Print a recipe that comes with the package.

    \b
    compress cat int8
    compress cat int8 > my.yaml
    """
    emit(packaged_named(name).path.read_text(encoding="utf-8").rstrip("\n"))


def packaged_named(name: str) -> "Packaged":
    """Raises InputError where no packaged recipe has that name."""
    from compress.recipe.packaged import list_packaged
    from compress.recipe.words import suggest

    recipes = {recipe.name: recipe for recipe in list_packaged()}
    if name not in recipes:
        raise InputError(name, "no packaged recipe has this name", suggest(name, recipes, label="Packaged recipes"))
    return recipes[name]
