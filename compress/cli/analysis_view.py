"""`compress.analysis/1` in the terminal, at 100 columns: verdict, shares, hottest operators, methods, advice."""

from typing import Any

from compress.cli.output import emit

WIDTH = 100
NAME_WIDTH = 24
# Shares below this are left out of the bars.
SMALL_SHARE = 0.01
# From here movement is worth a line of its own.
MOVEMENT_SHARE = 0.10
# A probe whose interval lies so far from the expectation contradicts it.
CONTRADICTS = 1.1
LITTLE_COVERED = 0.5
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Rows = list[list[str]]


def show(analysis: dict[str, Any]) -> None:
    """Print an analysis."""
    model, verdict = analysis["model"], analysis["verdict"]
    emit(f"model: {model['params']:,} params, {model['macs']:,} macs, {model['flops']:,} flops")
    if verdict is not None:
        _judgement(analysis)
    else:
        emit("verdict: none")
    if "llm" in analysis:
        _language_model(analysis["llm"])
    if analysis.get("symbolic"):
        form = analysis["symbolic"]
        emit(f"in symbols: macs = {_short_formula(form['macs'])}, unfused bytes = "
             f"{_short_formula(form['unfused_bytes'])}")  # fmt: skip
    _closing(analysis)


def _judgement(analysis: dict[str, Any]) -> None:
    verdict, device = analysis["verdict"], analysis["device"]
    emit(f"device: {device['name']} ({device['source']}{', contaminated' if device['contaminated'] else ''})")
    emit(f"verdict: {verdict['sentence']} ({verdict['confidence']})")
    for line in (*verdict["evidence"], *(f"error: {one}" for one in verdict["errors"])):
        emit(f"  {line}")
    shares = sorted(analysis["classes"].items(), key=lambda item: -item[1]["share"])
    shown = [(name, row["share"]) for name, row in shares if row["share"] >= SMALL_SHARE]
    emit("time is in: " + ", ".join(f"{name} {share:.0%}" for name, share in shown))
    table([[name, "#" * round(40 * share), f"{share:.0%}"] for name, share in shown], numbers=1)
    _operators(analysis)
    _movement(analysis)
    _methods(analysis["stages"])
    for one in verdict["advice"]:
        emit(f"advice: {one['sentence']}")


def _operators(analysis: dict[str, Any], count: int = 10) -> None:
    ops = analysis["ops"]
    hottest = sorted(analysis["op_classes"], key=lambda row: (-row["time_ms"], row["id"]))[:count]
    head = ["operator", "kind", "class", "ms", "bound", "x bound", "FLOP/B", "macs"]
    table([head, *(_operator(ops[row["id"]], row) for row in hottest)], numbers=5)
    emit("  ms: measured, - where it was not; bound: the operator alone, unfused; x bound: ms over bound")


def _operator(op: dict[str, Any], row: dict[str, Any]) -> list[str]:
    bound, intensity = row["bound_high_ms"], op["intensity_flop_per_byte"]
    measured = row["time_ms"] if row["measured"] else None
    return [
        _short_name(op["module"] or op["op"]),
        op["kind"],
        row["class"],
        "-" if measured is None else f"{measured:.4g}",
        f"{bound:.3g}",
        "-" if measured is None or not bound else f"{measured / bound:.3g}",
        "-" if intensity is None else f"{intensity:.3g}",
        _unit(op["macs"]),
    ]


def _movement(analysis: dict[str, Any]) -> None:
    """Say what moves data about without computing, where that takes time."""
    share = analysis["classes"].get("movement", {"share": 0.0})["share"]
    if share < MOVEMENT_SHARE:
        return
    rows = [row for row in analysis["op_classes"] if row["class"] == "movement"]
    rows = sorted(rows, key=lambda row: (-row["time_ms"], row["id"]))[:3]
    ops = [analysis["ops"][row["id"]] for row in rows]
    names = ", ".join(f"{_short_name(op['module'] or op['op'])} ({op['op'].rpartition('::')[2]})" for op in ops)
    emit(f"movement: {share:.0%} of the time goes into copies, transposes and casts, first {names}; "
         "pruning and fewer bits leave them where they are")  # fmt: skip


def _methods(stages: list[dict[str, Any]]) -> None:
    probed = any(row["probe_speedup"] for row in stages)
    head = ["method", "expected", "at most", *(["probe"] if probed else []), "helps"]
    rows = [
        [
            row["name"],
            f"{row['expected_speedup']:.2f}x",
            "-" if row["hard_speedup"] is None else f"{row['hard_speedup']:.3g}x",
            *([_probe(row)] if probed else []),
            row["helps"],
        ]
        for row in stages
    ]
    table([head, *rows])
    emit("  why each method helps or not is in --json, key stages" + ("" if probed else "; --probe times them"))


def _probe(row: dict[str, Any]) -> str:
    """The interval, how much of the time it speaks for, and whether it says otherwise than the expectation."""
    span, covered = row["probe_speedup"], row.get("probe_covered_share")
    if span is None:
        return "-"
    text = f"{span['value']:.2f}x [{span['low']:.2f}, {span['high']:.2f}]"
    text += " (estimate)" if span["n"] == 1 else ""
    if covered is not None:
        text += f", covers {'only ' if covered < LITTLE_COVERED else ''}{covered:.0%}"
    expected = row["expected_speedup"]
    if span["high"] * CONTRADICTS < expected:
        return f"{text}: less than expected"
    return f"{text}: more than expected" if span["low"] > expected * CONTRADICTS else text


def _language_model(llm: dict[str, Any]) -> None:
    emit(f"decode: {llm['decode']}")
    emit(f"prefill: {llm['prefill']}")
    emit(f"ridge {llm['ridge_flop_per_byte']:.3g} FLOP per byte in {llm['dtype']}; the most that fewer bits can give:")
    head = ["batch", "context", "FLOP/byte", "KV share", "bound ms", "fits", "int8 weights", "int4 weights", "KV int8"]
    rows = [
        [
            str(row["batch"]),
            str(row["context"]),
            f"{row['intensity_flop_per_byte']:.3g}",
            f"{row['kv_share']:.0%}",
            f"{row['time_ms']:.3g}",
            {True: "yes", False: "no", None: "-"}[row["fits"]],
            *(f"{row[f'{name}_speedup']:.2f}x" for name in ("int8_weights", "int4_weights", "kv_int8")),
        ]
        for row in llm["rows"]
    ]
    table([head, *rows], numbers=9)


def _closing(analysis: dict[str, Any]) -> None:
    unknown = ", ".join(f"{one['op']} x{one['calls']}" for one in analysis["unknown_ops"])
    emit(f"coverage: {analysis['coverage']:.0%}{f'; not counted: {unknown}' if unknown else ''}")
    for result in analysis.get("probes", []):
        if result["speedup"] is None:
            emit(f"probe {result['method']}: {result['note']}")
    if analysis["error"]:
        emit(f"partial: {analysis['error']}")
    for note in analysis["notes"]:
        emit(f"note: {note}")


def table(rows: Rows, *, numbers: int = 0) -> None:
    """Columns as wide as they need, the last `numbers` of them to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    grid = Table(box=None, padding=(0, 1, 0, 0), show_header=False, pad_edge=False)
    for place in range(len(rows[0])):
        right = place >= len(rows[0]) - numbers
        grid.add_column(no_wrap=True, justify="right" if right else "left", overflow="ellipsis")
    for row in rows:
        grid.add_row(*map(Text, row))
    # Piped output is as wide as a terminal that shows the table whole.
    console = Console(highlight=False)
    console = Console(highlight=False, width=max(WIDTH, console.width))
    console.print(grid)


def _short_name(name: str) -> str:
    """The end of a long name tells more than its beginning."""
    return name if len(name) <= NAME_WIDTH else "…" + name[-(NAME_WIDTH - 1) :]


def _short_formula(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _unit(count: int) -> str:
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
