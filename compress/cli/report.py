"""`compress report RUN`: show a run again, and render its HTML."""

from typing import Annotated

import typer


def report(
    run: Annotated[str, typer.Argument(help="a run's folder, its report.json, or a recipe's name for its newest run")],
    html: Annotated[bool, typer.Option("--html/--no-html", help="render report.html beside report.json")] = True,
    json: Annotated[bool, typer.Option("--json", help="print report.json and nothing else")] = False,
) -> None:
    """Show the report of a run, and render it as HTML.

    \b
    compress report int8
    compress report runs/int8/2026-01-31T12-00-00 --no-html
    compress report int8 --json > report.json

    The page is made anew from report.json; no model is loaded and nothing is measured.
    """
    # Rendering is slow to import, and --help needs none of it.
    from rich.console import Console

    from compress.report.html import render_run
    from compress.report.read import REPORT_FILE, read_report, resolve_run
    from compress.report.terminal import print_report

    folder = resolve_run(run)
    shown = read_report(folder)
    if json:
        typer.echo((folder / REPORT_FILE).read_text(encoding="utf-8"), nl=False)
        return
    if html:
        render_run(folder)
    print_report(shown, Console(), str(folder))
