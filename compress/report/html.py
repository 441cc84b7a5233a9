"""The report as one HTML file: no request leaves it, and nothing in it is computed in the browser."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.files import write_text
from compress.report import view, words
from compress.report.read import read_report
from compress.report.schema import Candidate, Measured, Report

HTML_FILE = "report.html"
TEMPLATE = "report.html.j2"
SHOWN_OPS = 12
SHOWN_METRICS = (
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "throughput_per_s",
    "size_bytes",
    "peak_memory_bytes",
)


def render_run(run_dir: Path) -> Path:
    """Render run_dir/report.json to run_dir/report.html and return its path.

    The old file stays whole until the new one is. Raises InputError (no usable report.json) and EnvironmentProblem
    (the folder cannot be written).
    """
    page = render_html(read_report(run_dir))
    target = run_dir / HTML_FILE
    write_text(target, page)
    return target


def render_html(report: Report) -> str:
    """The whole page. The same report gives the same text."""
    # Slow to import, and of use to nobody who only reads a report.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from compress.report import plots

    environment = Environment(
        loader=PackageLoader("compress.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        line=lambda text: words.one_line(str(text)), duration=words.duration, known=_known, count=_count, bytes_=_bytes
    )
    environment.globals.update(words=words, view=view, marks=words.MARKS, dominated=_dominated(report))
    figures = {
        "pareto": plots.pareto_svg(report),
        "latency": plots.latency_svg(report),
        "ops": plots.ops_svg(report),
        "audit": plots.audit_svg(report),
        "roofline": _roofline(report),
    }
    page = environment.get_template(TEMPLATE).render(
        report=report,
        figures=figures,
        cards=key_figures(report),
        leader=view.leading(report),
        quality=view.quality_metric(report),
        shown_ops=_slowest(report),
        baseline_metrics=_baseline_metrics(report),
        verdict_rows=_verdict_rows(report.verdict),
    )
    # JSON may carry half a surrogate pair, which no file can.
    return page.encode("utf-8", "replace").decode("utf-8")


def key_figures(report: Report) -> list[tuple[str, str, str]]:
    """(title, value, evidence) of the winner, or of the best so far; values that nobody measured say so."""
    leader = view.leading(report)
    if leader is None:
        return []
    quality = view.quality_metric(report)
    names = [quality, "speedup", "latency_p50_ms", "size_ratio", "agreement"]
    return [_card(report, leader, name) for name in names if name]


def _card(report: Report, leader: Candidate, metric: str) -> tuple[str, str, str]:
    found = view.measured(leader.metrics, metric)
    if found is None:
        return words.title(metric), words.NOT_MEASURED, _why_missing(leader, metric)
    rest = [words.bounds(metric, found.low, found.high), f"n={found.n}" if found.n not in (None, 1) else ""]
    base = _baseline_value(report, metric)
    rest.append(f"baseline {words.figure(metric, base.value)}" if base else "")
    return words.title(metric), words.figure(metric, found.value), ", ".join(part for part in rest if part)


def _why_missing(leader: Candidate, metric: str) -> str:
    found = leader.metrics.get(metric)
    return words.one_line(found.note) if found and found.note else ""


def _baseline_value(report: Report, metric: str) -> Measured | None:
    if metric == view.quality_metric(report):
        return view.baseline_quality(report)
    return view.measured(view.baseline_metrics(report), metric)


def _baseline_metrics(report: Report) -> list[str]:
    names = [view.quality_metric(report), *SHOWN_METRICS]
    return [name for name in names if name and any(name in each.metrics for each in report.baselines)]


def _roofline(report: Report) -> str | None:
    """Only where the analysis says which device it was made for."""
    from compress.report.roofline import roofline_svg

    analysis = report.analysis.model_dump(by_alias=True) if report.analysis else {}
    device = analysis.get("device")
    if not isinstance(device, dict):
        return None
    ceilings = device.get("ceilings", device)
    return roofline_svg(analysis, ceilings) if isinstance(ceilings, dict) else None


def _slowest(report: Report) -> list[Any]:
    ops = report.analysis.ops if report.analysis else []
    return sorted(ops, key=lambda op: (-(op.time_share or 0), -(op.macs or 0)))[:SHOWN_OPS]


def _dominated(report: Report) -> set[str]:
    from compress.report.pareto import dominated

    return dominated(report)


def _verdict_rows(verdict: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [(key.replace("_", " "), _plain(value)) for key, value in (verdict or {}).items() if value != []]


def _plain(value: Any) -> str:
    """A value of the verdict in words; the verdict's own format belongs to the analyzer."""
    if isinstance(value, list):
        return "; ".join(_plain(each).removesuffix(".") for each in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_plain(each)}" for key, each in value.items())
    if isinstance(value, float):
        return words.significant(value)
    return words.NOT_MEASURED if value is None else str(value)


def _known(value: Any) -> str:
    """The value as text; None and nothing at all are "not measured"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words.NOT_MEASURED if value is None or value == "" else words.one_line(str(value))


def _count(value: float | None) -> str:
    return words.NOT_MEASURED if value is None else words.scaled(value)


def _bytes(value: float | None) -> str:
    return words.figure("size_bytes", value)
