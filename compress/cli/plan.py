"""`compress plan`: the ladder as a tree, before anything runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.cli.check import AsJson, Overrides
from compress.cli.output import emit_json
from compress.cli.run import Output, RecipeName

if TYPE_CHECKING:
    from compress.planning import Step


def plan(
    recipe: RecipeName,
    overrides: Overrides = [],  # noqa: B006  # typer copies it
    output: Output = Path(),
    as_json: AsJson = False,
) -> None:
    """Show what a run would do: each step, whether it is cached and why not, and the minutes it should take.

    \b
    compress plan recipes/int8.yaml
    compress plan int8 --set data.calibration_samples=128

    Loads your model and data to compare them with what was run before; runs nothing.
    """
    from compress import planning
    from compress.recipe.load import load_recipe
    from compress.recipe.packaged import find_recipe

    loaded = load_recipe(find_recipe(recipe), overrides or ())
    steps = planning.plan(loaded, output)
    if as_json:
        emit_json([vars(step) for step in steps])
    else:
        _print_tree(str(loaded.path), steps)


def _print_tree(title: str, steps: "list[Step]") -> None:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    to_do = [step for step in steps if step.state != "cached"]
    guess = any(step.guessed for step in to_do)
    minutes = sum(step.seconds for step in to_do) / 60
    about = "under a minute" if minutes < 1 else f"about {minutes:.0f} min"
    tree = Tree(
        Text(f"{title}: {about}" + (" (a first guess: nothing was run here yet)" if guess else ""), style="bold")
    )
    branches: dict[int, Any] = {0: tree}
    for step in steps:
        mark = {"cached": "= ", "run": "> ", "maybe": "? "}[step.state]
        branches[step.depth + 1] = branches[step.depth].add(Text(f"{mark}{step.name}: {step.why}" + _time(step)))
    Console().print(tree)


def _time(step: "Step") -> str:
    return "" if step.state == "cached" or not step.seconds else f" (~{step.seconds:.0f} s)"
