"""The command line: verbs in a list, one file each, which import what they need when they run: `--help` is quick."""

from typing import Annotated

import typer

import compress
from compress.cli.analyze import analyze
from compress.cli.check import check
from compress.cli.cp import cp
from compress.cli.doctor import doctor
from compress.cli.ls import cat, ls
from compress.cli.output import emit
from compress.cli.plan import plan
from compress.cli.report import report
from compress.cli.run import run
from compress.cli.schema import schema

# The order of `compress --help`. Adding a verb is one line.
VERBS = (
    analyze,
    run,
    plan,
    report,
    check,
    ls,
    cat,
    cp,
    schema,
    doctor,
)

app = typer.Typer(
    name="compress",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        emit(f"compress {compress.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # answered by its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[  # read in __main__, because it says how errors are shown
        bool, typer.Option("--verbose", "-v", help="Show the traceback of every error.")
    ] = False,
) -> None:
    """Tell whether compression helps a model here, climb the cheapest ladder of methods, prove the served file.

    \b
    compress ls                      the recipes that come with the package
    compress cp int8 .               start from one of them
    compress check int8.yaml         find its mistakes before anything runs
    compress plan int8.yaml          see what would run, and for how long
    compress run int8.yaml           climb the ladder, get a file and its proof

    \b
    Exit codes: 0 every gate passed, 1 a gate failed, 2 recipe or usage error,
    3 environment problem, 4 stopped by the verdict, 70 a bug in compress, 130 interrupted.
    """


for verb in VERBS:
    app.command()(verb)
