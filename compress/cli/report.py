"""`compress report RUN`: show a run again, and render its HTML."""

from typing import Annotated

import typer

EPILOG = """
Examples:

  compress report int8                     the newest run of the recipe named int8

  compress report runs/int8/2026-01-31T12-00-00

  compress report int8 --json > report.json
"""


def report(
    run: Annotated[str, typer.Argument(help="a run's folder, its report.json, or a recipe's name for its newest run")],
    html: Annotated[bool, typer.Option("--html/--no-html", help="render report.html beside report.json")] = True,
    json: Annotated[bool, typer.Option("--json", help="print report.json and nothing else")] = False,
) -> None:
    """Show the report of a run, and render it as HTML.

    The HTML is made anew from report.json; no model is loaded and nothing is measured.
    """
    from rich.console import Console

    from compress.report.html import render_run
    from compress.report.read import read_report, resolve_run
    from compress.report.terminal import print_report

    folder = resolve_run(run)
    if json:
        read_report(folder)
        typer.echo((folder / "report.json").read_text(encoding="utf-8"), nl=False)
        return
    shown = read_report(folder)
    if html:
        render_run(folder)
    print_report(shown, Console(), str(folder))
