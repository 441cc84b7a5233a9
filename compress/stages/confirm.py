"""Confirm the winner: fresh timing, and the split that no decision has seen."""

from dataclasses import dataclass
from pathlib import Path

from compress.candidate import Candidate, GateResult, Outcome, Value
from compress.gate import CONFIDENCE, accepted, outcome_of
from compress.measure.latency import Plan
from compress.stages.baseline import FloatModel
from compress.stages.context import Context
from compress.stages.judge import judge, with_speed
from compress.stages.trial import Timing, evaluate, time_against
from compress.store import Entry

FINAL = Plan(min_blocks=60, seconds=4.0, min_calls=470)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    metrics: dict[str, Value]
    gates: list[GateResult]
    outcome: Outcome
    timings: list[Timing]


def run(context: Context, model: FloatModel, candidate: Candidate) -> Confirmation:
    """Judge `candidate` on `confirm`, against the float file on the same samples.

    Every look after the first has half the error of the one before, so all looks together have at most twice its.
    """
    baseline = evaluate(context, model.path, model.entry.digest, "confirm", reference=None)
    path = Path(str(candidate.artefact))
    trial = evaluate(context, path, _digest_of(context, model, path), "confirm", reference=baseline.outputs)
    timings = [time_against(context, model.path, path, batch, FINAL) for batch in context.recipe.target.batch_sizes]
    confidence = 1 - (1 - CONFIDENCE) / 2 ** len(context.refuted)
    gates = judge(context, baseline, trial, timings, "confirm", confidence)
    return Confirmation(
        metrics=with_speed(trial, timings, baseline), gates=gates,
        outcome=outcome_of(gates, accepted(context.recipe.gates)), timings=timings,
    )  # fmt: skip


def _digest_of(context: Context, model: FloatModel, path: Path) -> str:
    entry: Entry | None = model.entry if path == model.path else None
    return entry.digest if entry else context.store.digest_at(path.parent)
