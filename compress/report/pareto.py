"""Quality against speed: what each candidate costs and what it buys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compress.report import drawing, view, words
from compress.report.labels import Box, nearest, place_labels
from compress.report.schema import Measured, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

HEIGHT = 430.0
LABEL_CELLS = 26
GATE = "gate: "
OUTCOME_RANK = {"fail": 0, "undecided": 1, "pass": 2}
POINT_RADIUS = 5.0
# Room around the data, as a share of its spread, so that labels fit beside the outermost points.
MARGIN = 0.16


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One mark: x speed, y quality, what it is called and how it stands."""

    name: str
    x: Measured
    y: Measured
    outcome: str | None
    leads: bool
    dominated: bool


def pareto_svg(report: Report) -> str | None:
    """Quality against speed-up (or P50 latency where no speed-up is known); None where no candidate has both."""
    quality, speed = view.quality_metric(report), speed_metric(report)
    dots = _dots(report, quality, speed)
    if quality is None or not any(dot.outcome for dot in dots):
        return None
    with drawing.canvas(HEIGHT) as (figure, axes):
        _draw_gates(axes, report, quality, speed)
        for dot in dots:
            _draw_dot(axes, dot)
        axes.set_xlabel(_speed_title(report, speed))
        axes.set_ylabel(words.title(quality))
        _fit_limits(axes, dots)
        _draw_labels(figure, axes, dots)
        title = f"{words.title(quality)} against {words.title(speed)}"
        return drawing.to_svg(figure, "pareto", title, _summary(dots, quality, speed))


def speed_metric(report: Report) -> str:
    """Speed-up, which is measured interleaved with the baseline; P50 latency where there is none."""
    known = any(view.measured(candidate.metrics, "speedup") for candidate in report.candidates)
    return "speedup" if known else "latency_p50_ms"


def dominated(report: Report) -> set[str]:
    """Names of candidates that lie behind another of no worse outcome: slower or worse, and better at neither.

    Point values are compared, so this says where to look, not that the difference is certain.
    """
    quality, speed, sign = view.quality_metric(report), speed_metric(report), view.quality_sign(report)
    if sign is None:
        return set()
    faster = 1 if speed == "speedup" else -1
    scores = {}
    for candidate in report.candidates:
        x, y = view.measured(candidate.metrics, speed), view.measured(candidate.metrics, quality)
        if x and y:
            scores[candidate.name] = (OUTCOME_RANK[candidate.outcome], faster * _value(x), sign * _value(y))
    return {name for name, score in scores.items() if any(_beats(other, score) for other in scores.values())}


def _beats(other: tuple[float, ...], score: tuple[float, ...]) -> bool:
    return all(a >= b for a, b in zip(other, score, strict=True)) and other[1:] != score[1:]


def _dots(report: Report, quality: str | None, speed: str) -> list[Dot]:
    beaten, leader = dominated(report), view.leading(report)
    dots = []
    base_y = view.baseline_quality(report)
    base_x = Measured(value=1.0) if speed == "speedup" else view.measured(view.baseline_metrics(report), speed)
    if base_x and base_y and report.baseline:
        name = f"baseline: {report.baseline}"
        dots.append(Dot(name=name, x=base_x, y=base_y, outcome=None, leads=False, dominated=False))
    for candidate in report.candidates:
        x, y = view.measured(candidate.metrics, speed), view.measured(candidate.metrics, quality)
        if x and y:
            state = {"leads": candidate is leader, "dominated": candidate is not leader and candidate.name in beaten}
            dots.append(Dot(name=candidate.name, x=x, y=y, outcome=candidate.outcome, **state))
    return dots


def _draw_dot(axes: "Axes", dot: Dot) -> None:
    shape = {None: "s", "pass": "o", "fail": "X", "undecided": "D"}[dot.outcome]
    colour = {None: drawing.INK, "pass": drawing.BLUE, "fail": drawing.ORANGE, "undecided": drawing.PURPLE}[dot.outcome]
    colour = drawing.SOFT if dot.dominated else colour
    axes.errorbar(
        [_value(dot.x)],
        [_value(dot.y)],
        xerr=_arms(dot.x),
        yerr=_arms(dot.y),
        fmt=shape,
        color=colour,
        markersize=11 if dot.leads else 7,
        markeredgecolor=drawing.INK if dot.leads else colour,
        markeredgewidth=1.8 if dot.leads else 1,
        elinewidth=1.6 if dot.leads else 0.8,
        zorder=4 if dot.leads else 3,
    )


def _draw_gates(axes: "Axes", report: Report, quality: str, speed: str) -> None:
    for gate in report.recipe.gates:
        line: dict[str, float | None] = {
            quality: _quality_limit(report, gate.limit, gate.value),
            speed: gate.value if gate.limit in ("min", "max") else None,
        }
        place = line.get(gate.metric)
        if place is not None:
            draw = axes.axhline if gate.metric == quality else axes.axvline
            label = f"{GATE}{words.gate_wanted(gate.metric, gate.limit, gate.value)}"
            draw(
                place,
                color=drawing.GREEN,
                linestyle="--" if gate.metric == quality else "-.",
                linewidth=1.4,
                label=label,
            )
    if axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper left", ncols=1, fontsize=drawing.FONT_SIZE - 1)


def _quality_limit(report: Report, limit: str, value: float) -> float | None:
    """Where a gate's line stands on the quality axis; None where the baseline or the better direction is unknown."""
    if limit in ("min", "max"):
        return value
    base, sign = view.baseline_quality(report), view.quality_sign(report)
    if base is None or base.value is None or sign is None:
        return None
    return base.value - sign * (value if limit == "max_drop" else value * abs(base.value))


def _fit_limits(axes: "Axes", dots: Sequence[Dot]) -> None:
    for ends, setter, getter in (
        ([end for dot in dots for end in _ends(dot.x)], axes.set_xlim, axes.get_xlim),
        ([end for dot in dots for end in _ends(dot.y)], axes.set_ylim, axes.get_ylim),
    ):
        low, high = min(*ends, *getter()), max(*ends, *getter())
        room = (high - low) * MARGIN
        setter(low - room, high + room)


def _draw_labels(figure: "Figure", axes: "Axes", dots: Sequence[Dot]) -> None:
    from matplotlib.transforms import IdentityTransform

    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # labels are placed in points, so nothing may move after this
    points = [tuple(axes.transData.transform((_value(dot.x), _value(dot.y)))) for dot in dots]
    texts = [axes.text(0, 0, _label(dot), _label_style(dot), transform=IdentityTransform()) for dot in dots]
    sizes = [(box.width + 4, box.height + 3) for box in (text.get_window_extent(renderer) for text in texts)]
    area = axes.get_window_extent(renderer)
    bounds = (area.x0 + 2, area.y0 + 2, area.x1, area.y1)
    obstacles = [_square(point) for point in points] + [bar for dot in dots for bar in _bars(axes, dot)]
    obstacles += [line.get_window_extent(renderer).padded(2).extents for line in axes.get_lines() if _is_gate(line)]
    for point, text, box in zip(points, texts, place_labels(points, sizes, bounds, obstacles), strict=True):
        text.set_position((box[0] + 2, box[1] + 1.5))
        _draw_leader(axes, point, nearest(box, point))


def _is_gate(line: "Line2D") -> bool:
    return str(line.get_label()).startswith(GATE)


def _draw_leader(axes: "Axes", point: tuple[float, float], end: tuple[float, float]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.transforms import IdentityTransform

    if (point[0] - end[0]) ** 2 + (point[1] - end[1]) ** 2 > (3 * POINT_RADIUS) ** 2:
        xs, ys = (point[0], end[0]), (point[1], end[1])
        line = Line2D(xs, ys, color=drawing.SOFT, linewidth=0.7, transform=IdentityTransform(), zorder=2)
        axes.add_line(line)


def _label(dot: Dot) -> str:
    mark = words.MARKS[dot.outcome].symbol + " " if dot.outcome else ""
    return mark + words.shorten(words.one_line(dot.name), LABEL_CELLS)


def _label_style(dot: Dot) -> dict[str, Any]:
    return {
        "fontsize": drawing.FONT_SIZE,
        "color": drawing.SOFT if dot.dominated else drawing.INK,
        "fontweight": "bold" if dot.leads else "normal",
        "verticalalignment": "bottom",
        "zorder": 5,
    }


def _speed_title(report: Report, speed: str) -> str:
    if speed == "speedup":
        return f"speed-up over {words.baseline_name(report.baseline)} (right is faster)"
    return "P50 latency, ms (left is faster)"


def _summary(dots: Sequence[Dot], quality: str, speed: str) -> str:
    parts = [f"{dot.name}: {words.evidence(quality, dot.y)} at {words.evidence(speed, dot.x)}" for dot in dots]
    return "; ".join(words.one_line(part) for part in parts)


def _value(measured: Measured) -> float:
    return float(measured.value or 0.0)


def _ends(measured: Measured) -> list[float]:
    return [float(end) for end in (measured.low, measured.value, measured.high) if end is not None]


def _arms(measured: Measured) -> list[list[float]]:
    """Lengths of the interval's two arms, (2, 1); none where the interval is unknown."""
    ends = _ends(measured)
    return [[_value(measured) - min(ends)], [max(ends) - _value(measured)]]


def _square(point: tuple[float, float]) -> Box:
    return point[0] - POINT_RADIUS, point[1] - POINT_RADIUS, point[0] + POINT_RADIUS, point[1] + POINT_RADIUS


def _bars(axes: "Axes", dot: Dot) -> list[Box]:
    to_points = axes.transData.transform
    left, low = to_points((min(_ends(dot.x)), min(_ends(dot.y))))
    right, high = to_points((max(_ends(dot.x)), max(_ends(dot.y))))
    x, y = to_points((_value(dot.x), _value(dot.y)))
    return [(left, y - 1, right, y + 1), (x - 1, low, x + 1, high)]
