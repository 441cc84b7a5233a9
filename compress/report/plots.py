"""The report's figures, each an <svg> element or None where there is nothing to show."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compress.report import drawing, view, words
from compress.report.pareto import pareto_svg
from compress.report.schema import Candidate, Measured, Report, RuntimeOp

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["audit_svg", "latency_svg", "ops_svg", "pareto_svg"]

ROW, FRAME = 26.0, 80.0
NAME_CELLS = 34
TOP_OPS = 12
BAR = 0.62
# What a kernel computes in, its colour, and a hatch for readers who cannot tell the colours.
KERNEL_KINDS = (
    ("integer", drawing.BLUE, ""),
    ("float", drawing.ORANGE, "//"),
    ("boundary (quantize, dequantize)", drawing.SOFT, ""),
)
FOREST_SHAPES = ("o", "s", "^", "D", "v", "P", "X", "*")


def latency_svg(report: Report) -> str | None:
    """Forest plot: each candidate's speed-up with its interval, one row per batch size; None where none was timed."""
    rows = _speedups(report)
    if not rows:
        return None
    batches = sorted({batch for _, batch, _ in rows if batch is not None})
    labels = [_row_name(candidate.name, batch, batches) for candidate, batch, _ in rows]
    with drawing.canvas(FRAME + ROW * len(rows)) as (figure, axes):
        for place, (candidate, batch, speedup) in zip(drawing.bar_rows(axes, labels), rows, strict=True):
            shape = FOREST_SHAPES[(batches.index(batch) if batch in batches else 0) % len(FOREST_SHAPES)]
            _draw_interval(axes, place, speedup, shape, leads=candidate is view.leading(report))
        axes.axvline(1.0, color=drawing.INK, linewidth=1, label="no faster, no slower (1x)")
        for gate in report.recipe.gates:
            if gate.metric == "speedup":
                wanted = f"gate: {words.gate_wanted('speedup', gate.limit, gate.value)}"
                axes.axvline(gate.value, color=drawing.GREEN, linestyle="--", linewidth=1.4, label=wanted)
        figure.legend(loc="outside upper left", ncols=2, fontsize=drawing.FONT_SIZE - 1)
        axes.set_xlabel(f"speed-up over {words.baseline_name(report.baseline)}")
        low, high = axes.get_xlim()
        axes.set_xlim(low, high + 0.3 * (high - low))  # room for the figures beside the bars
        said = [f"{label}: {words.evidence('speedup', row[2])}" for label, row in zip(labels, rows, strict=True)]
        return drawing.to_svg(figure, "latency", "Speed-up of each candidate", "; ".join(said))


def ops_svg(report: Report) -> str | None:
    """Bars of the float model's slowest kernels in the target runtime, by share of time; None where not timed."""
    timed = [op for op in (report.analysis.top_ops_runtime if report.analysis else []) if op.share is not None]
    ops = sorted(timed, key=lambda op: -(op.share or 0))[:TOP_OPS]
    if not ops:
        return None
    with drawing.canvas(FRAME - 20 + ROW * len(ops)) as (figure, axes):
        shares = [100 * float(op.share or 0) for op in ops]
        bars = axes.barh(drawing.bar_rows(axes, [_op_name(op) for op in ops]), shares, height=BAR, color=drawing.BLUE)
        axes.bar_label(bars, [f"{share:.1f} %{_op_time(op)}" for share, op in zip(shares, ops, strict=True)], padding=4)
        axes.set_xlabel("share of the time, %")
        axes.set_xlim(0, max(*shares, 1.0) * 1.25)
        said = [f"{_op_name(op)}: {share:.1f} %" for share, op in zip(shares, ops, strict=True)]
        return drawing.to_svg(figure, "ops", "Where the float model's time goes", "; ".join(said))


def audit_svg(report: Report) -> str | None:
    """Stacked bars of the kernels that ran, integer, float and boundary, per candidate; None where none was counted."""
    audited = [candidate for candidate in report.candidates if any(count is not None for count in _counts(candidate))]
    if not audited:
        return None
    labels = [words.shorten(words.one_line(candidate.name), NAME_CELLS) for candidate in audited]
    said = [f"{label}: {_count_text(candidate)}" for label, candidate in zip(labels, audited, strict=True)]
    with drawing.canvas(FRAME + ROW * len(audited)) as (figure, axes):
        _stack_kernels(axes, drawing.bar_rows(axes, labels), audited)
        figure.legend(loc="outside upper left", ncols=len(KERNEL_KINDS), fontsize=drawing.FONT_SIZE - 1)
        axes.set_xlabel("kernels that ran")
        return drawing.to_svg(figure, "audit", "Integer, float and boundary kernels of each candidate", "; ".join(said))


def _stack_kernels(axes: "Axes", places: Sequence[float], audited: Sequence[Candidate]) -> None:
    lefts = [0] * len(audited)
    for kind, (name, colour, hatch) in enumerate(KERNEL_KINDS):
        counts = [_counts(candidate)[kind] or 0 for candidate in audited]
        axes.barh(places, counts, BAR, lefts, color=colour, hatch=hatch, edgecolor=drawing.PAPER, label=name)
        lefts = [left + count for left, count in zip(lefts, counts, strict=True)]
    for place, left, candidate in zip(places, lefts, audited, strict=True):
        axes.annotate(_count_text(candidate), (left, place), (5, 0), textcoords="offset points", va="center")
    axes.set_xlim(0, max(*lefts, 1) * 1.2)  # room for the figures beside the bars


def _speedups(report: Report) -> list[tuple[Candidate, int | None, Measured]]:
    """Every measured speed-up: by batch where there are several, else the candidate's own figure."""
    rows: list[tuple[Candidate, int | None, Measured]] = []
    for candidate in report.candidates:
        found = [(candidate, each.batch, each.speedup) for each in candidate.by_batch if each.speedup]
        single = view.measured(candidate.metrics, "speedup")
        if not found and single:
            found = [(candidate, single.batch, single)] if single.batch else []
            rows += [] if found else [(candidate, None, single)]
        rows += [row for row in found if row[2].value is not None]
    return rows


def _draw_interval(axes: "Axes", place: float, speedup: Measured, shape: str, leads: bool) -> None:
    value = float(speedup.value or 0)
    low, high = (value if end is None else float(end) for end in (speedup.low, speedup.high))
    colour = drawing.BLUE if leads else drawing.SOFT
    axes.plot([low, high], [place, place], color=colour, linewidth=3 if leads else 1.8, solid_capstyle="butt", zorder=2)
    axes.plot([value], [place], shape, color=colour, markersize=8, markeredgecolor=drawing.INK, zorder=3)
    text = f"{words.figure('speedup', value)} {words.bounds('speedup', speedup.low, speedup.high)}"
    paper = {"facecolor": drawing.PAPER, "edgecolor": "none", "pad": 1}  # a gate's line must not strike the figures out
    axes.annotate(text.strip(), (high, place), (9, 0), textcoords="offset points", va="center", fontsize=10, bbox=paper)


def _row_name(name: str, batch: int | None, batches: Sequence[int]) -> str:
    shown = words.shorten(words.one_line(name), NAME_CELLS)
    return f"{shown}, batch {batch}" if batch is not None and len(batches) > 1 else shown


def _op_name(op: RuntimeOp) -> str:
    place = f" {words.one_line(op.name)}" if op.name else ""
    return words.shorten(f"{words.one_line(op.op)}{place}", NAME_CELLS + 6)


def _op_time(op: RuntimeOp) -> str:
    return f", {words.figure('latency_ms', op.time_ms)}" if op.time_ms is not None else ""


def _counts(candidate: Candidate) -> tuple[int | None, int | None, int | None]:
    audit = candidate.audit
    return (audit.integer_ops, audit.float_ops, audit.boundary_ops) if audit else (None, None, None)


def _count_text(candidate: Candidate) -> str:
    return " / ".join("?" if count is None else str(count) for count in _counts(candidate))
