"""`compress doctor`: what is wrong with this installation or this machine, and what the machine can do."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compress.cli.output import complain, emit, emit_json
from compress.cli.run import Output
from compress.errors import EXIT_ENVIRONMENT

if TYPE_CHECKING:
    from compress.device.ceilings import Ceilings
    from compress.device.checkup import Finding

Measure = Annotated[bool, typer.Option("--measure", help="Measure the machine's ceilings too, in half a minute.")]
Threads = Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Threads to measure with.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def doctor(measure: Measure = False, threads: Threads = 1, output: Output = Path(), as_json: AsJson = False) -> None:
    """Look for what would spoil a run on this machine, and measure what the machine can do.

    \b
    compress doctor
    compress doctor --measure --threads 2
    compress doctor --json

    Exit code 3 if something is broken. Ceilings are kept per user and reused until the machine or a version changes.
    """
    from compress.device.checkup import ceilings, checkup
    from compress.runs import FREE_BYTES

    findings = checkup(output, FREE_BYTES, threads)
    broken = any(finding.mark == "fail" for finding in findings)
    measured = _measure(threads) if measure and not broken else None
    if measured:
        findings = [ceilings(threads) if finding.what == "ceilings" else finding for finding in findings]
    if as_json:
        shown = measured.as_dict() if measured else None
        emit_json({"ok": not broken, "findings": [asdict(one) for one in findings], "ceilings": shown})
    else:
        _show(findings, measured)
    if broken:
        complain("not measured: repair first what is marked `fail`") if measure else None
        raise typer.Exit(EXIT_ENVIRONMENT)


def _measure(threads: int) -> "Ceilings":
    from compress.device.cached import save_ceilings
    from compress.measure.ceilings import measure_ceilings

    found = measure_ceilings(threads, lambda step: complain(f"measuring: {step}"))
    path = save_ceilings(found)
    complain(f"ceilings kept in {path}" if path else "this machine was busy: the earlier, quiet ceilings are kept")
    return found


def _show(findings: "list[Finding]", measured: "Ceilings | None") -> None:
    width = max(len(one.what) for one in findings)
    for one in findings:
        emit(f"{one.mark:<4}  {one.what:<{width}}  {one.fact}")
        if one.remedy:
            emit(f"{'':<4}  {'':<{width}}  -> {one.remedy}")
    if measured:
        from compress.cli.ceilings import ceilings_text

        emit("\n" + ceilings_text(measured))
