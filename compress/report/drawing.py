"""Figures as SVG that lives inside a page: same bytes for the same report, text as text, colours that follow the page.

matplotlib is imported inside the functions, so that reading a report stays quick.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by readers with any of the common colour deficiencies.
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
# Stand-ins that the page's own colours replace; hex codes that no palette above uses.
INK, SOFT, PAPER = "#010203", "#7f7e7d", "#fefdfc"
PAGE_COLOURS = {INK: "currentColor", SOFT: "var(--soft, #767676)", PAPER: "var(--card, #ffffff)"}

INCH = 72.0
WIDTH = 760.0
FONT_SIZE = 11.0
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "compress.report",
    # A name with dollar signs is a name, not a formula.
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": FONT_SIZE,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "axes.unicode_minus": False,
}
DROPPED = re.compile(r"<metadata>.*?</metadata>\s*|<style[^>]*>.*?</style>\s*", re.DOTALL)


@contextmanager
def canvas(height: float) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure of WIDTH by `height` points with one set of axes, under our settings."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # The reader's browser draws the text with its own fonts; ours only measure it.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support", category=UserWarning)
        figure = Figure(figsize=(WIDTH / INCH, height / INCH), dpi=INCH, layout="constrained")
        FigureCanvasAgg(figure)
        figure.patch.set_visible(False)
        yield figure, figure.add_subplot()


def to_svg(figure: "Figure", key: str, title: str, summary: str) -> str:
    """The figure as an <svg> element: `key` makes its ids unique in the page, title and summary are read aloud."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    drawn = DROPPED.sub("", buffer.getvalue())
    body = re.sub(r"<[^>]*>", lambda tag: _adapted(tag.group(), key), drawn[drawn.index("<svg") :])
    inside = body[body.index(">") + 1 :]
    width, height = figure.get_size_inches() * INCH
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(title)}" stroke-linejoin="round">'
        f"<title>{escape(title)}</title><desc>{escape(summary)}</desc>{inside.strip()}"
    )


def bar_rows(axes: "Axes", labels: Sequence[str]) -> list[float]:
    """Name the rows of a horizontal chart from the top down; returns the vertical place of each."""
    places = [float(-row) for row in range(len(labels))]
    axes.set_yticks(places, labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(-len(labels) + 0.4, 0.6)
    return places


def _adapted(tag: str, key: str) -> str:
    """Our page's ids and colours in one tag; text between tags is never touched."""
    tag = re.sub(r'\bid="', f'id="{key}-', tag)
    tag = re.sub(r'(?:xlink:)?href="#', f'href="#{key}-', tag)
    tag = tag.replace("url(#", f"url(#{key}-")
    for stand_in, colour in PAGE_COLOURS.items():
        tag = tag.replace(stand_in, colour)
    return tag
