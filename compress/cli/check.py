"""`compress check`: find the mistakes of recipes before anything runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compress.cli.output import complain, emit, emit_json
from compress.errors import EXIT_USAGE, CompressError, RecipeError

if TYPE_CHECKING:
    from compress.recipe.load import LoadedRecipe

Recipes = Annotated[list[str], typer.Argument(metavar="RECIPE...", help="Files, or names of packaged recipes.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. budget.minutes=5.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def check(recipes: Recipes, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check recipes without running anything.

    \b
    compress check recipes/int8.yaml
    compress check int8 --set target.threads=2 --set stages.ptq.method=auto
    compress check a.yaml b.yaml --json

    Every mistake is one line with file, line and column; nothing of yours is imported. Exit code 2 if there is one.
    """
    results = [_check_one(name, overrides or []) for name in recipes]
    problems = [result for result in results if isinstance(result, RecipeError)]
    if as_json:
        emit_json([_as_json(name, result) for name, result in zip(recipes, results, strict=True)])
    else:
        for result in results:
            complain(result) if isinstance(result, RecipeError) else emit(_summary(result))
    if problems:
        raise typer.Exit(EXIT_USAGE)


def _check_one(name: str, overrides: list[str]) -> "LoadedRecipe | RecipeError":
    from compress.recipe.load import load_recipe
    from compress.recipe.packaged import find_recipe

    try:
        return load_recipe(find_recipe(name), overrides)
    except RecipeError as error:
        return error


def _summary(loaded: "LoadedRecipe") -> str:
    recipe, target = loaded.recipe, loaded.recipe.target
    stages = f"{_count(len(recipe.stages), 'stage')} ({', '.join(stage.label for stage in recipe.stages)})"
    place = f"target {target.runtime} {target.provider} {_count(target.threads, 'thread')}"
    return f"{loaded.path}: ok: {stages}, {_count(len(recipe.gates), 'gate')}, {place}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _as_json(name: str, result: "LoadedRecipe | RecipeError") -> dict[str, Any]:
    if isinstance(result, RecipeError):
        problems = [_problem_as_json(problem) for problem in (result, *result.more)]
        return {"recipe": name, "path": None, "ok": False, "digest": None, "problems": problems}
    return {"recipe": name, "path": str(Path(result.path)), "ok": True, "digest": result.digest, "problems": []}


def _problem_as_json(problem: CompressError) -> dict[str, str]:
    return {"place": problem.place, "fact": problem.fact, "remedy": problem.remedy}
