"""Questions asked of a report by more than one rendering."""

from compress.recipe.spec import COST_METRICS, FIDELITY_METRICS, SPEED_METRICS, STABILITY_METRICS
from compress.report.schema import Baseline, Candidate, JudgedGate, Measured, Metrics, Report

COUNT_METRICS = ("params", "macs", "flops")
NOT_QUALITY = (*SPEED_METRICS, *COST_METRICS, *FIDELITY_METRICS, *STABILITY_METRICS, *COUNT_METRICS)
HIGHER_IS_BETTER = ("top1", *FIDELITY_METRICS)


def quality_metric(report: Report) -> str | None:
    """The task's metric: as the recipe names it, else the first one that is no speed, cost or fidelity."""
    if report.recipe.metric:
        return report.recipe.metric
    owners: list[Baseline | Candidate] = [*report.baselines, *report.candidates]
    names = [gate.metric for gate in report.recipe.gates] + [name for owner in owners for name in owner.metrics]
    return next((name for name in names if name not in NOT_QUALITY), None)


def quality_sign(report: Report) -> int | None:
    """1 where more of the quality metric is better, -1 where less is, None where the report does not say."""
    if report.recipe.metric_direction:
        return 1 if report.recipe.metric_direction == "higher" else -1
    return 1 if quality_metric(report) in HIGHER_IS_BETTER else None


def find_candidate(report: Report, name: str | None) -> Candidate | None:
    """The candidate of that name, or None."""
    return next((candidate for candidate in report.candidates if candidate.name == name), None)


def leading(report: Report) -> Candidate | None:
    """The winner, or else the best so far."""
    return find_candidate(report, report.winner) or find_candidate(report, report.best_so_far)


def measured(metrics: Metrics, name: str | None) -> Measured | None:
    """The metric if it has a value, else None."""
    found = metrics.get(name) if name else None
    return found if found and found.value is not None else None


def baseline_metrics(report: Report) -> Metrics:
    """Metrics of the baseline that speed-ups are measured against; empty where there is none."""
    return next((each.metrics for each in report.baselines if each.name == report.baseline), {})


def baseline_quality(report: Report) -> Measured | None:
    """Score of the float model: of the baseline itself, or of the first other baseline that was scored."""
    name = quality_metric(report)
    scores = [measured(baseline_metrics(report), name)] + [measured(each.metrics, name) for each in report.baselines]
    return next((score for score in scores if score), None)


def missed_gates(candidate: Candidate) -> list[JudgedGate]:
    """The gates that did not pass."""
    return [gate for gate in candidate.gates if gate.outcome != "pass"]


def all_batches(report: Report) -> list[int]:
    """Every batch size that some candidate was timed at, ascending."""
    return sorted({figures.batch for candidate in report.candidates for figures in candidate.by_batch})
