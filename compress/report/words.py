"""Numbers and names in words, the same in every rendering. No value is shown without what it rests on."""

import math
from typing import NamedTuple

from rich.cells import cell_len

from compress.report.schema import JudgedGate, Measured

NOT_MEASURED = "not measured"


class Mark(NamedTuple):
    """An outcome as symbol and word, so that colour is never the only sign; ascii for terminals without Unicode."""

    symbol: str
    ascii: str
    word: str
    colour: str


MARKS = {
    "pass": Mark("✓", "+", "pass", "green"),
    "fail": Mark("✗", "x", "fail", "red"),
    "undecided": Mark("?", "?", "undecided", "yellow"),
    "stopped": Mark("■", "#", "stopped", "magenta"),
}

SECONDS_PER_MINUTE = 60
SMALL = 0.1
TITLE_CELLS = 40
TIMES = ("speedup", "size_ratio")
BYTES = ("size_bytes", "peak_memory_bytes")
COUNTS = ("params", "macs", "flops")
TITLES = {
    "latency_p50_ms": "P50 latency",
    "latency_p95_ms": "P95 latency",
    "latency_p99_ms": "P99 latency",
    "throughput_per_s": "throughput",
    "size_bytes": "size",
    "size_ratio": "size ratio",
    "peak_memory_bytes": "peak memory",
    "sqnr_db": "SQNR",
    "batch_variance": "change by batch-mates",
    "speedup": "speed-up",
}


def title(metric: str) -> str:
    """The metric's name for people."""
    return TITLES.get(metric, one_line(metric))


def one_line(text: str) -> str:
    """The text on one line, with control characters (which a terminal would obey) shown as replacement characters."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def shorten(text: str, width: int, gap: str = "…") -> str:
    """At most `width` terminal cells: both ends of a name tell more than its middle."""
    if cell_len(text) <= width:
        return text
    head, tail = "", ""
    for index in range(len(text)):
        longer = (text[: len(head) + 1], tail) if index % 2 == 0 else (head, text[len(text) - len(tail) - 1 :])
        if cell_len("".join(longer)) > width - 1:
            break
        head, tail = longer
    return f"{head}{gap}{tail}"


def baseline_name(name: str | None) -> str:
    """The baseline's name, short enough for a title."""
    return shorten(one_line(name or "the baseline"), TITLE_CELLS)


def figure(metric: str, value: float | None) -> str:
    """One value of a metric with its unit."""
    if value is None:
        return NOT_MEASURED
    if metric in TIMES:
        return f"{value:.2f}x"
    if metric in BYTES:
        return scaled(value, "B")
    if metric in COUNTS:
        return scaled(value)
    if metric.endswith("_ms"):
        return f"{significant(value)} ms"
    if metric.endswith("_per_s"):
        return f"{significant(value)} /s"
    if metric.endswith("_db"):
        return f"{value:.1f} dB"
    # Scores sit just below 1, where the promises are about the third decimal.
    return f"{value:.4f}" if SMALL <= abs(value) <= 1 else significant(value)


def significant(value: float) -> str:
    """Three digits, never in scientific notation between 0.0001 and a million."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0") if abs(value) < SMALL else text


def scaled(value: float, unit: str = "") -> str:
    """Powers of a thousand: 2.81 MB, 79 M."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:  # what rounds to 1000 belongs to the next prefix
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".strip()


def bounds(metric: str, low: float | None, high: float | None) -> str:
    """`[low, high]`, or what is known of it, or nothing."""
    if low is not None and high is not None:
        return f"[{_bare(metric, low)}, {_bare(metric, high)}]"
    if high is not None:
        return f"(at most {_bare(metric, high)})"
    return f"(at least {_bare(metric, low)})" if low is not None else ""


def evidence(metric: str, measured: Measured | None) -> str:
    """`0.909 [0.901, 0.917] (n=5000)`, or why there is no value."""
    if measured is None:
        return NOT_MEASURED
    if measured.value is None:
        return one_line(measured.note) if measured.note else NOT_MEASURED
    n = f"(n={measured.n})" if measured.n is not None else ""
    return " ".join(
        part for part in (figure(metric, measured.value), bounds(metric, measured.low, measured.high), n) if part
    )


def gate_wanted(metric: str, limit: str, threshold: float) -> str:
    """What a gate asks for: `top1 drop at most 0.01`."""
    if limit == "max_drop":
        return f"{title(metric)} drop at most {threshold:g}"
    if limit == "max_relative_drop":
        return f"{title(metric)} drop at most {threshold:.2%} of the baseline"
    return f"{title(metric)} {'at least' if limit == 'min' else 'at most'} {figure(metric, threshold)}"


def gate_found(gate: JudgedGate) -> str:
    """What was found at a gate, with its bound: `0.0008 (at most 0.0021)`."""
    # A drop is a difference of scores, so it has no unit of its own.
    metric = gate.metric if gate.limit in ("min", "max") else ""
    return " ".join(part for part in (figure(metric, gate.value), bounds(metric, gate.low, gate.high)) if part)


def gate_note(gate: JudgedGate) -> str:
    """What else is to be said: the note, and how much more data would decide."""
    needed = f"about {gate.needed_n} would decide" if gate.needed_n is not None else ""
    return "; ".join(part for part in (one_line(gate.note or ""), needed) if part)


def duration(seconds: float | None) -> str:
    """`12.3 s`, `2 min 11 s`, `1 h 4 min`."""
    if seconds is None:
        return NOT_MEASURED
    if seconds < SECONDS_PER_MINUTE - 0.05:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS_PER_MINUTE)
    if minutes < SECONDS_PER_MINUTE:
        return f"{minutes} min {rest} s"
    return f"{minutes // SECONDS_PER_MINUTE} h {minutes % SECONDS_PER_MINUTE} min"


def _bare(metric: str, value: float) -> str:
    # Inside an interval the unit would only repeat; bytes and counts keep theirs, for it can differ between the ends.
    text = figure(metric, value)
    return text if metric in BYTES + COUNTS else text.removesuffix("x").split(" ")[0]
