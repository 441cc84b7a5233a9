"""The roofline: how much each operator computes per byte it moves, how fast it goes, and what the device allows.

Williams, Waterman and Patterson, CACM 52 (2009). An operator stands at its bytes with element-wise neighbours fused;
the bar beside it runs from no fusion at all to every tensor of the model moved once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.report import drawing, words
from compress.report.labels import Box, nearest, place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 440.0
LABELLED = 5
LABEL_CELLS = 30
MOST_ROOFS = 6
ROOF_GAP = 13.0
PETA = 1e15
SMALLEST_POINT, LARGEST_POINT = 4.0, 17.0
KINDS = {
    "contraction": ("o", drawing.BLUE),
    "attention": ("s", drawing.PURPLE),
    "recurrent": ("D", drawing.GREEN),
    "elementwise": ("^", drawing.ORANGE),
    "reduction": ("v", drawing.ORANGE),
    "other": ("P", drawing.SOFT),
}
SLOPE_STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One operator. x: flop per byte, low without fusion, high at best; y: flop per second, reached or allowed."""

    name: str
    kind: str
    x: float
    low: float
    high: float
    y: float
    measured: bool
    share: float


@dataclass(frozen=True, kw_only=True)
class Roofs:
    """flop_per_s: by dtype; bytes_per_s: by memory level, the nearest first."""

    name: str
    source: str
    flop_per_s: dict[str, float]
    bytes_per_s: dict[str, float]

    def allows(self, intensity: float) -> float:
        """FLOP/s that single precision (or the only dtype there is) reaches at most with bytes from the last level."""
        peak = self.flop_per_s.get("fp32") or max(self.flop_per_s.values())
        return min(peak, intensity * list(self.bytes_per_s.values())[-1])


def roofline_svg(analysis: Mapping[str, Any], ceilings: Mapping[str, Any]) -> str | None:
    """An <svg> element, or None where no operator computes anything or the device has no roof.

    analysis: `compress.analysis/1`; ceilings: what `compress.device.ceilings.Ceilings.as_dict` writes.
    """
    points, roofs = _points(analysis, ceilings), roofs_of(ceilings)
    if roofs is None or not points:
        return None
    with drawing.canvas(HEIGHT) as (figure, axes):
        _draw(figure, axes, points, roofs)
        return drawing.to_svg(figure, "roofline", f"Roofline on {words.one_line(roofs.name)}", _summary(points, roofs))


def roofline_png(analysis: Mapping[str, Any], ceilings: Mapping[str, Any], path: Path) -> Path | None:
    """The same figure as a PNG file, or None where there is nothing to draw."""
    points, roofs = _points(analysis, ceilings), roofs_of(ceilings)
    if roofs is None or not points:
        return None
    with drawing.canvas(HEIGHT) as (figure, axes):
        _draw(figure, axes, points, roofs)
        figure.savefig(path, format="png", dpi=2 * drawing.INCH, facecolor="white", metadata={"Software": None})
    return path


def roofs_of(ceilings: Mapping[str, Any]) -> Roofs | None:
    """The roofs that ceilings hold, or None where a rate or a bandwidth is missing."""
    rates = {str(dtype): _rate(rate) for dtype, rate in (ceilings.get("flop_per_s") or {}).items()}
    rates = {dtype: rate for dtype, rate in rates.items() if rate > 0}
    levels = {str(level["name"]): _best(level.get("bytes_per_s") or {}) for level in ceilings.get("levels") or []}
    levels = {name: rate for name, rate in levels.items() if rate > 0}
    if not rates or not levels:
        return None
    kept = sorted(rates.items(), key=lambda item: (item[0] != "fp32", -item[1], item[0]))[:MOST_ROOFS]
    name, source = str(ceilings.get("name") or "this device"), str(ceilings.get("source") or "")
    return Roofs(name=name, source=source, flop_per_s=dict(kept), bytes_per_s=levels)


def _rate(rate: Mapping[str, Any]) -> float:
    figures = [rate[kernel] for kernel in ("gemm", "conv") if rate.get(kernel)]
    return max((float(each["value"]) for each in figures), default=0.0) if _is_useful(rate) else 0.0


def _is_useful(rate: Mapping[str, Any]) -> bool:
    """Nobody computes in a dtype that is emulated more slowly than single precision."""
    return bool(rate.get("supported", True)) and not rate.get("slower_than_fp32", False)


def _best(bytes_per_s: Mapping[str, Any]) -> float:
    return max((float(each["value"]) for each in bytes_per_s.values()), default=0.0)


def _points(analysis: Mapping[str, Any], ceilings: Mapping[str, Any]) -> list[Point]:
    """Operators that compute, those with the most time first."""
    roofs = roofs_of(ceilings)
    ops = analysis.get("ops") or []
    timed = any(op.get("time_ms") for op in ops)
    found = [point for op in ops if roofs is not None and (point := _point(op, roofs, timed)) is not None]
    total = sum(float(op.get("time_ms") or 0.0) for op in ops) / 1e3 if timed else sum(each.share for each in found)
    shares = [Point(**(vars(each) | {"share": each.share / total})) for each in found] if total else found
    return sorted(shares, key=lambda each: (-each.share, each.name))


def _point(op: Mapping[str, Any], roofs: Roofs, timed: bool) -> Point | None:
    """An operator with its seconds in `share`; None for one that computes or moves nothing, or was not timed."""
    work = float(op.get("flops") or 0) + float(op.get("elementwise_flops") or 0)
    levels = op.get("levels") or {}
    moved = {level: float((levels.get(level) or {}).get("total_bytes") or 0) for level in ("C", "G", "U")}
    nbytes = moved["G"] or moved["U"]
    seconds = float(op.get("time_ms") or 0.0) / 1e3
    if not work or not nbytes or (timed and not seconds):
        return None
    x = work / nbytes
    ends = [x, *(work / each for each in moved.values() if each)]
    return Point(
        name=str(op.get("module") or op.get("op") or "?"),
        kind=str(op.get("kind")) if op.get("kind") in KINDS else "other",
        x=x,
        low=min(ends),
        high=max(ends),
        y=work / seconds if timed else roofs.allows(x),
        measured=timed,
        share=seconds if timed else work / roofs.allows(x),
    )


def _draw(figure: "Figure", axes: "Axes", points: Sequence[Point], roofs: Roofs) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    _fit(axes, points, roofs)
    _draw_roofs(axes, roofs)
    for point in reversed(points):  # the largest last, on top
        _draw_point(axes, point)
    _legend(figure, axes, points)
    axes.set_xlabel("FLOP per byte moved")
    axes.set_ylabel("FLOP per second" if points[0].measured else "FLOP per second that the device allows")
    axes.xaxis.set_major_formatter(lambda value, _place: words.significant(value))
    axes.yaxis.set_major_formatter(lambda value, _place: _amount(value, ""))
    axes.minorticks_off()
    figure.draw_without_rendering()
    _label_roofs(figure, axes, roofs)
    _label_points(figure, axes, points)


def _fit(axes: "Axes", points: Sequence[Point], roofs: Roofs) -> None:
    peak = max(roofs.flop_per_s.values())
    ridge = peak / min(roofs.bytes_per_s.values())
    axes.set_xlim(min(point.low for point in points) / 2, max(ridge, *(point.high for point in points)) * 8)
    axes.set_ylim(min(point.y for point in points) / 3, max(peak, *(point.y for point in points)) * 2.5)


def _amount(value: float, unit: str) -> str:
    """As `words.scaled`, with a prefix for what large devices do."""
    return f"{value / PETA:.3g} P{unit}" if value >= PETA else words.scaled(value, unit)


def _points_transform(axes: "Axes") -> Any:
    """Places in points of the page, whatever resolution it is drawn at."""
    from matplotlib.transforms import Affine2D

    return Affine2D().scale(1 / drawing.INCH) + axes.figure.dpi_scale_trans


def _draw_roofs(axes: "Axes", roofs: Roofs) -> None:
    left, right = axes.get_xlim()
    top = max(roofs.flop_per_s.values())
    fastest = max(roofs.bytes_per_s.values())
    for place, (level, rate) in enumerate(roofs.bytes_per_s.items()):
        style = SLOPE_STYLES[place % len(SLOPE_STYLES)]
        label = f"{words.one_line(level)}: {_amount(rate, 'B/s')}"
        axes.plot(
            [left, top / rate], [left * rate, top], style, color=drawing.INK, linewidth=1.1, label=label, zorder=1
        )
    for peak in roofs.flop_per_s.values():
        axes.plot([peak / fastest, right], [peak, peak], "-", color=drawing.SOFT, linewidth=1.1, zorder=1)


def _draw_point(axes: "Axes", point: Point) -> None:
    shape, colour = KINDS[point.kind]
    size = SMALLEST_POINT + (LARGEST_POINT - SMALLEST_POINT) * math.sqrt(min(1.0, max(0.0, point.share)))
    axes.plot([point.low, point.high], [point.y, point.y], color=colour, linewidth=1.4, alpha=0.5, zorder=2)
    face = colour if point.measured else drawing.PAPER
    axes.plot(
        [point.x], [point.y], shape, color=colour, markersize=size, markerfacecolor=face, zorder=3,
        markeredgecolor=drawing.INK if point.measured else colour, markeredgewidth=0.7 if point.measured else 1.5,
    )  # fmt: skip


def _legend(figure: "Figure", axes: "Axes", points: Sequence[Point]) -> None:
    from matplotlib.lines import Line2D

    there = [kind for kind in KINDS if any(point.kind == kind for point in points)]
    kinds = [Line2D([], [], marker=KINDS[k][0], color=KINDS[k][1], linestyle="none", label=k) for k in there]
    handles = [*axes.get_legend_handles_labels()[0], *kinds]
    figure.legend(handles=handles, loc="outside upper left", ncols=4, fontsize=drawing.FONT_SIZE - 1)


def _label_roofs(figure: "Figure", axes: "Axes", roofs: Roofs) -> None:
    """Names at the right end of the roofs, above each line, moved up where two would touch."""
    figure.set_layout_engine("none")  # labels are placed in points, so nothing may move after this
    right = axes.get_window_extent().x1
    lowest = -math.inf
    for rate in sorted(set(roofs.flop_per_s.values())):
        dtypes = ", ".join(dtype for dtype, each in roofs.flop_per_s.items() if each == rate)
        y = max(float(axes.transData.transform((1.0, rate))[1]) + 2, lowest + ROOF_GAP)
        lowest = y
        text = f"{words.one_line(dtypes)}: {_amount(rate, 'FLOP/s')}"
        _text(axes, text, (right - 2, y), size=drawing.FONT_SIZE - 1, horizontalalignment="right")


def _label_points(figure: "Figure", axes: "Axes", points: Sequence[Point]) -> None:
    from matplotlib.lines import Line2D

    shown = points[:LABELLED]
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    places = [_place(axes, point.x, point.y) for point in shown]
    taken: list[Box] = [text.get_window_extent(renderer).extents for text in axes.texts]
    texts = [_text(axes, _label(point), (0.0, 0.0), size=drawing.FONT_SIZE) for point in shown]
    sizes = [(box.width + 4, box.height + 3) for box in (text.get_window_extent(renderer) for text in texts)]
    area = axes.get_window_extent(renderer)
    bounds = (area.x0 + 2, area.y0 + 2, area.x1 - 2, area.y1)
    obstacles = [*taken, *(_around(_place(axes, each.x, each.y)) for each in points), *_lines(axes)]
    for place, text, box in zip(places, texts, place_labels(places, sizes, bounds, obstacles), strict=True):
        text.set_position((box[0] + 2, box[1] + 1.5))
        end = nearest(box, place)
        if math.dist(place, end) > LARGEST_POINT:
            line = ((place[0], end[0]), (place[1], end[1]))
            axes.add_line(Line2D(*line, color=drawing.SOFT, linewidth=0.7, transform=_points_transform(axes), zorder=2))


def _text(
    axes: "Axes", text: str, place: tuple[float, float], *, size: float, horizontalalignment: str = "left"
) -> Any:
    return axes.text(
        *place, text, fontsize=size, color=drawing.INK, transform=_points_transform(axes), verticalalignment="bottom",
        horizontalalignment=horizontalalignment, zorder=5,
    )  # fmt: skip


def _label(point: Point) -> str:
    return f"{words.shorten(words.one_line(point.name), LABEL_CELLS)} {100 * point.share:.0f} %"


def _place(axes: "Axes", x: float, y: float) -> tuple[float, float]:
    found = axes.transData.transform((x, y))
    return float(found[0]), float(found[1])


def _around(place: tuple[float, float], radius: float = 6.0) -> Box:
    return place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius


def _lines(axes: "Axes") -> list[Box]:
    """Small boxes along roofs, slopes and bars, so that no name is struck out."""
    import numpy as np

    boxes: list[Box] = []
    for line in axes.get_lines():
        ends = [_place(axes, float(x), float(y)) for x, y in np.asarray(line.get_xydata())]
        (x0, y0), (x1, y1) = ends[0], ends[-1]
        steps = int(math.dist((x0, y0), (x1, y1)) / 8)
        for step in range(steps):
            x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
            boxes.append((x - 4, y - 2, x + 4, y + 2))
    return boxes


def _summary(points: Sequence[Point], roofs: Roofs) -> str:
    slopes = [f"{name} {_amount(rate, 'B/s')}" for name, rate in roofs.bytes_per_s.items()]
    peaks = [f"{dtype} {_amount(rate, 'FLOP/s')}" for dtype, rate in roofs.flop_per_s.items()]
    largest = [f"{point.name}: {words.significant(point.x)} FLOP per byte" for point in points[:LABELLED]]
    how = "as measured" if points[0].measured else "as the device allows, nothing measured"
    parts = [f"{len(points)} operators, {how}", *peaks, *slopes, *largest]
    return "; ".join(words.one_line(part) for part in parts)
