"""`compress schema`: the JSON Schemas of the formats, for editors and programs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from compress.cli.output import emit_json
from compress.errors import InputError


def _recipe() -> dict[str, Any]:
    from compress.recipe.schema import recipe_schema

    return recipe_schema()


def _report() -> dict[str, Any]:
    from compress.report.schema import report_schema

    return report_schema()


def _analysis() -> dict[str, Any]:
    from compress.analyze.schema import analysis_schema

    return analysis_schema()


# Each builder imports its format only when asked for it.
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "recipe": _recipe,
    "report": _report,
    "analysis": _analysis,
}


def schema(name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(SCHEMAS)}.")]) -> None:
    """Print the JSON Schema of a format.

    \b
    compress schema recipe
    compress schema recipe > recipe.schema.json
    """
    from compress.recipe.words import suggest

    if name not in SCHEMAS:
        raise InputError(name, "no format has this name", suggest(name, SCHEMAS, label="Known"))
    emit_json(SCHEMAS[name]())
