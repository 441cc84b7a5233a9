"""What a step inside PTQ can still change, and which way it starts from. Pure decisions over what was tried."""

from collections.abc import Sequence
from dataclasses import replace

from compress.candidate import Candidate, GateResult
from compress.gate import sentence
from compress.quantize.ways import Step, Way
from compress.recipe.spec import COST_METRICS, SPEED_METRICS, STABILITY_METRICS
from compress.stages.ptq_try import Tried

SMALLEST_LIMIT = 0.002
PENALTY = {"pass": 0, "undecided": 1, "fail": 2}


def leader(tried: Sequence[Tried]) -> Tried | None:
    """The static file to go on from: fast and small enough, without overflow where there is a choice, then by quality.

    Quality counts the gates it misses first and its distance from the float model after, so that a step that makes
    things worse is never built upon.
    """
    usable = [one for one in tried if _is_static(one) and not _missed(one.candidate, fixed=True)]
    return max(usable, key=_merit, default=None)


def mixed_bases(tried: Sequence[Tried], *, overflows: bool) -> list[Way]:
    """The ways that mixed precision starts from, at most two: the leader's, and the same with the next best scheme.

    overflows: whether 8-bit sums can overflow on this CPU. There the 7-bit scheme goes first: as long as one bad
    operator drowns all others, an overflow does not show.
    """
    best = leader(tried)
    if best is None or best.way is None:
        return []
    others = [one for one in tried if one.way is not None and one.way.scheme != best.way.scheme]
    other = leader(others)
    if other is None or other.way is None:
        return [best.way]
    second = replace(best.way, scheme=other.way.scheme)
    hidden = overflows and second.scheme.reduced and not best.way.scheme.reduced and second.scheme.per_channel
    return [second, best.way] if hidden else [best.way, second]


def skip_reason(step: Step, tried: Sequence[Tried]) -> str:
    """Why a step cannot help; empty when it can."""
    static = [one for one in tried if _is_static(one)]
    if not static:
        return "no static file was made that it could start from"
    best = leader(tried)
    if best is None:
        nearest = min(static, key=lambda one: len(_missed(one.candidate, fixed=True)))
        missed = "; ".join(sentence(gate) for gate in _missed(nearest.candidate, fixed=True))
        return f"{nearest.candidate.name} misses {missed}, which {step} cannot change"
    if not _missed(best.candidate, fixed=False):
        return f"{best.candidate.name} misses nothing that {step} can change"
    return ""


def quality_missed(candidate: Candidate) -> list[GateResult]:
    """Gates on accuracy and closeness that the candidate does not pass."""
    return _missed(candidate, fixed=False)


def _missed(candidate: Candidate, *, fixed: bool) -> list[GateResult]:
    """Gates not passed: with `fixed` those on speed, cost and batching, which ranges and rounding do not change.

    An undecided speed is no reason to stop: what is built on it is timed again.
    """
    metrics = (*SPEED_METRICS, *COST_METRICS, *STABILITY_METRICS)
    if fixed:
        return [gate for gate in candidate.gates if gate.metric in metrics and gate.outcome == "fail"]
    return [gate for gate in candidate.gates if gate.metric not in metrics and gate.outcome != "pass"]


def _is_static(one: Tried) -> bool:
    return one.way is not None and one.way.scheme.kind == "static" and one.candidate.artefact is not None


def _merit(one: Tried) -> tuple[bool, int, float, float]:
    found = one.candidate.metrics.get("sqnr_db")
    closeness = float("-inf") if found is None else float("inf") if found.value is None else found.value
    penalty = sum(PENALTY[gate.outcome] for gate in _missed(one.candidate, fixed=False))
    return not one.candidate.saturates, -penalty, -_drops(one.candidate), closeness


def _drops(candidate: Candidate) -> float:
    """Drops of the gates on accuracy, each counted in whole limits: smaller differences are noise."""
    gates = [gate for gate in candidate.gates if gate.limit in ("max_drop", "max_relative_drop")]
    return sum(round((gate.value or 0.0) / max(gate.threshold, SMALLEST_LIMIT)) for gate in gates)
