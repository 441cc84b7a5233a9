"""The report for a terminal: first the answer, then what it rests on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from compress.report import view, words
from compress.report.schema import Baseline, Candidate, JudgedGate, LedgerRow, Measured, Report

WIDE = 112
NARROWEST_NAME = 10
# Most wanted first: the last ones give way when the console is narrow.
BASELINE_METRICS = ("latency_p50_ms", "latency_p99_ms", "size_bytes", "peak_memory_bytes", "throughput_per_s")

Cell = str | Text


def print_report(report: Report, console: Console, run_dir: str | None = None) -> None:
    """Print the whole report, no line wider than the console.

    run_dir: the run's folder, to say where things are; report.html is named if it is there, so render it first.
    """
    _print_outcome(report, console)
    _print_baselines(report, console)
    _print_candidates(report, console)
    _print_gates(report, console)
    _print_confirmation(report, console)
    _print_ledger(report, console)
    _print_next(report, console, run_dir)


def _print_outcome(report: Report, console: Console) -> None:
    head = _mark(console, report.outcome, upper=True)
    head.append(f"  {_fit(console, words.one_line(report.recipe.name))}", style="bold")
    took = "" if report.seconds is None else f"{words.duration(report.seconds)}, "
    head.append(f"  {took}exit code {report.exit_code}", style="dim")
    _say(console, head)
    _say(console, words.one_line(report.reason))
    if report.winner is None and report.best_so_far is not None:
        _say(console, f"Best so far: {words.one_line(report.best_so_far)}")


def _print_baselines(report: Report, console: Console) -> None:
    _heading(console, "Baselines")
    shown = [name for name in (view.quality_metric(report), *BASELINE_METRICS) if name and _has(report.baselines, name)]
    table = _baseline_table(report, console, shown)
    while len(shown) > 2 and _total_width(table) > console.width:
        shown.pop()
        table = _baseline_table(report, console, shown)
    _print_table(console, table, "no baseline was measured")
    if report.measurement and report.measurement.a_a:
        test = report.measurement.a_a
        said = {True: "clean", False: "noisy: small differences mean nothing", None: "not judged"}[test.clean]
        found = words.evidence("speedup", Measured(value=test.value, low=test.low, high=test.high, n=test.n))
        _say(console, f"A/A test of the baseline: {found}, {said}", style="dim")


def _baseline_table(report: Report, console: Console, shown: Sequence[str]) -> list[list[Cell]]:
    table: list[list[Cell]] = [["baseline", *(words.title(name) for name in shown)]]
    for baseline in report.baselines:
        chosen = baseline.name == report.baseline
        name = f"{_pick(console, '▸ ', '> ') if chosen else '  '}{words.one_line(baseline.name)}"
        table.append([name, *(_two_part(baseline, metric) for metric in shown)])
    return table


def _total_width(table: Sequence[Sequence[Cell]]) -> int:
    """Cells that the table needs, a gap after each column included."""
    columns = zip(*table, strict=True)
    return sum(max(_width(Text(cell) if isinstance(cell, str) else cell) for cell in column) + 1 for column in columns)


def _print_candidates(report: Report, console: Console) -> None:
    _heading(console, "Candidates")
    quality = view.quality_metric(report)
    names = [name for name in (quality, "speedup") if name]
    table: list[list[Cell]] = [
        ["scheme", *(words.title(name) for name in names), "P50,\nsize", "ops\ni/f/b", "outcome"]
    ]
    for candidate in report.candidates:
        table.append(
            [
                _candidate_name(report, candidate, console),
                *(_two_part(candidate, name) for name in names),
                f"{_brief(candidate, 'latency_p50_ms')}\n{_brief(candidate, 'size_ratio')}",
                _ops(candidate),
                _mark(console, candidate.outcome),
            ]
        )
    _print_table(console, table, "no candidate was made")
    if any(candidate.audit for candidate in report.candidates):
        _say(console, "ops i/f/b: integer, float and boundary kernels that ran", style="dim")
    for candidate in report.candidates:
        if candidate.note:
            _say(console, f"{words.one_line(candidate.name)}: {words.one_line(candidate.note)}", style="dim")


def _print_gates(report: Report, console: Console) -> None:
    candidate = view.leading(report)
    if candidate is None:
        return
    role = "winner" if report.winner else "best so far"
    _heading(console, f"Gates of {words.one_line(candidate.name)} ({role})")
    _print_gate_table(console, candidate.gates)


def _print_gate_table(console: Console, gates: Sequence[JudgedGate]) -> None:
    table: list[list[Cell]] = [["wanted", "found", "outcome"]]
    for gate in gates:
        wanted = words.gate_wanted(gate.metric, gate.limit, gate.threshold)
        table.append([wanted, words.gate_found(gate), _mark(console, gate.outcome)])
    _print_table(console, table, "no gate was judged")
    for gate in gates:
        if note := words.gate_note(gate):
            _say(console, f"{words.title(gate.metric)}: {note}", style="dim")


def _print_confirmation(report: Report, console: Console) -> None:
    if report.confirmation is None:
        return
    _heading(console, f"Confirmed on the {words.one_line(report.confirmation.split)} split")
    for name, measured in report.confirmation.metrics.items():
        _say(console, f"{words.title(name)} {words.evidence(name, measured)}")
    if report.confirmation.gates:
        _print_gate_table(console, report.confirmation.gates)


def _print_ledger(report: Report, console: Console) -> None:
    _heading(console, "Ledger")
    if not report.ledger:
        _say(console, "no stage was reached", style="dim")
    for row in report.ledger:
        line = Text(_fit(console, words.one_line(row.stage)), style="bold")
        line.append(f": {_ledger_state(row)}", style="not bold")
        _say(console, line)
        for label, text in (("changed", row.changed), ("why", row.why), ("gain", row.gain), ("risk", row.risk)):
            if text:
                _say(console, f"{label + ':':<9}{words.one_line(text)}", indent=2)


def _print_next(report: Report, console: Console, run_dir: str | None) -> None:
    _heading(console, "Where things are")
    if run_dir is not None:
        if (Path(run_dir) / "report.html").is_file():
            _say(console, f"report   {words.one_line(run_dir)}/report.html")
        _say(console, f"data     {words.one_line(run_dir)}/report.json")
    candidate = view.leading(report)
    if candidate is not None and candidate.artefact:
        folder = f"{words.one_line(run_dir)}/" if run_dir is not None else ""
        _say(console, f"model    {folder}{words.one_line(candidate.artefact)}")
    if report.next:
        _heading(console, "Next")
    for command in report.next:
        _say(console, words.one_line(command), indent=2)


def _ledger_state(row: LedgerRow) -> str:
    if not row.entered:
        return "not entered"
    kept = {True: "kept", False: "rolled back", None: "entered"}[row.kept]
    return f"{kept}, {words.duration(row.seconds)}{' (from the store)' if row.cached else ''}"


def _candidate_name(report: Report, candidate: Candidate, console: Console) -> str:
    mark = "  "
    if candidate.name == report.winner:
        mark = _pick(console, "★ ", "* ")
    elif candidate.name == report.best_so_far:
        mark = _pick(console, "▸ ", "> ")
    # The stage has its place in the second line, so the name need not repeat it.
    scheme = words.one_line(candidate.name).removeprefix(f"{candidate.stage}/")
    return f"{mark}{scheme}\n  {words.one_line(candidate.stage)}, {words.one_line(candidate.form)}"


def _two_part(owner: Baseline | Candidate, metric: str) -> str:
    found = view.measured(owner.metrics, metric)
    if found is None:
        return "-"
    value = words.figure(metric, found.value) + (f" n={found.n}" if found.n not in (None, 1) else "")
    interval = words.bounds(metric, found.low, found.high)
    return f"{value}\n{interval}" if interval else value


def _brief(candidate: Candidate, metric: str) -> str:
    found = view.measured(candidate.metrics, metric)
    return words.figure(metric, found.value) if found else "-"


def _ops(candidate: Candidate) -> str:
    if candidate.audit is None:
        return "-"
    counts = (candidate.audit.integer_ops, candidate.audit.float_ops, candidate.audit.boundary_ops)
    return "/".join("?" if count is None else str(count) for count in counts)


def _has(owners: Iterable[Baseline], metric: str) -> bool:
    return any(view.measured(owner.metrics, metric) for owner in owners)


def _print_table(console: Console, rows: list[list[Cell]], empty: str) -> None:
    """Print rows, the first of them the header; the first column gives way when the console is narrow."""
    if len(rows) == 1:
        _say(console, empty, style="dim")
        return
    texts = [[Text(_fit(console, cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    if console.width >= WIDE:
        texts = [[_joined(cell) if number else cell for number, cell in enumerate(row)] for row in texts]
    widths = [max(_width(row[column]) for row in texts) for column in range(len(texts[0]))]
    widths[0] = max(NARROWEST_NAME, min(widths[0], console.width - sum(width + 1 for width in widths[1:])))
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    for number, head in enumerate(texts[0]):
        table.add_column(_narrowed(console, head, widths[number]), no_wrap=True, overflow="crop", width=widths[number])
    for row in texts[1:]:
        table.add_row(*(_narrowed(console, cell, width) for cell, width in zip(row, widths, strict=True)))
    console.print(table)


def _joined(cell: Text) -> Text:
    return Text(" ").join(cell.split("\n")) if "\n" in cell.plain else cell


def _width(cell: Text) -> int:
    return max(cell_len(line) for line in cell.plain.split("\n"))


def _narrowed(console: Console, cell: Text, width: int) -> Text:
    if _width(cell) <= width:
        return cell
    gap = _pick(console, "…", "~")
    return Text("\n".join(words.shorten(line, width, gap) for line in cell.plain.split("\n")), style=cell.style)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(
        Text(words.shorten(_fit(console, text), console.width, _pick(console, "…", "~")), style="bold underline")
    )


def _say(console: Console, text: str | Text, style: str = "", indent: int = 0) -> None:
    line = Text(_fit(console, text), style=style) if isinstance(text, str) else text
    console.print(Padding(line, (0, 0, 0, indent), expand=False), overflow="fold", highlight=False)


def _mark(console: Console, outcome: str, upper: bool = False) -> Text:
    mark = words.MARKS[outcome]
    word = mark.word.upper() if upper else mark.word
    return Text(f"{_pick(console, mark.symbol, mark.ascii)} {word}", style=f"bold {mark.colour}")


def _pick(console: Console, symbol: str, plain: str) -> str:
    return plain if console.options.ascii_only else symbol


def _fit(console: Console, text: str) -> str:
    # A terminal without Unicode would raise on a name it cannot spell.
    return text.encode("ascii", "backslashreplace").decode() if console.options.ascii_only else text
