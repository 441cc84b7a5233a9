"""`compress run`: climb the ladder of a recipe and prove the result."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from compress.cli.check import Overrides
from compress.cli.output import emit_json

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A file, or the name of a packaged recipe.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where runs/ and .compress/ are kept.")]


def run(
    recipe: RecipeName,
    overrides: Overrides = [],  # noqa: B006  # typer copies it
    output: Output = Path(),
    force: Annotated[
        bool, typer.Option("--force", help="Go on when the verdict says that no stage can reach.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print report.json at the end, for programs.")] = False,
) -> None:
    """Run a recipe: baselines, the ladder of stages, confirmation, report.

    \b
    compress run recipes/int8.yaml
    compress run int8 --set stages.ptq.method=u8u8-tensor
    compress run mine.yaml --output /data/experiments --json

    What was done before is reused; after Ctrl-C or a crash the same command continues. Progress goes to stderr.
    """
    from rich.console import Console

    from compress.recipe.load import load_recipe
    from compress.recipe.packaged import find_recipe

    loaded = load_recipe(find_recipe(recipe), overrides or ())
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    from compress import pipeline, planning
    from compress.report.progress import RunProgress
    from compress.report.terminal import print_report

    try:
        with RunProgress(Console(stderr=True), planning.estimates(loaded.recipe, output)) as progress:
            finished = pipeline.run(loaded, output, progress, force=force)
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        emit_json(finished.report.model_dump(mode="json", by_alias=True))
    else:
        print_report(finished.report, Console(), str(finished.folder))
    raise typer.Exit(finished.report.exit_code)


def _as_interrupt(_signum: int, _frame: FrameType | None) -> None:
    """A polite kill ends like Ctrl-C: with a report of what was found."""
    raise KeyboardInterrupt
