"""Judge a file that was tried: every gate of the recipe, at every batch size it promises, and one gate of the house."""

from collections.abc import Sequence
from dataclasses import replace

from compress.candidate import Candidate, GateResult, Value
from compress.gate import CONFIDENCE, Paired, accepted, judge_drop, judge_value, outcome_of, worst_of
from compress.recipe.spec import SPEED_METRICS, Gate, Recipe
from compress.stages.context import Context
from compress.stages.trial import Timing, Trial

# A served batch mixes strangers' requests, so what one gets must not hang on the others. Static files change by
# nothing, or by a code here and there where float sums differ; dynamic ones by 0.3 to 4 % on the nets of the zoo.
MOST_BATCH_VARIANCE = 0.002
NOT_CONFIRMED = "passed on select, not confirmed on unseen samples: its gates are those found there"


def judge(
    context: Context,
    baseline: Trial,
    trial: Trial,
    timings: Sequence[Timing],
    split: str,
    confidence: float = CONFIDENCE,
) -> list[GateResult]:
    """One result per gate of the recipe, in its order, then the house's own. timings: one per batch size.

    confidence: of the bound on a drop.
    """  # fmt: skip
    gates = [*context.recipe.gates, *house_gates(context.recipe)]
    return [_judge_one(context, gate, baseline, trial, timings, split, confidence) for gate in gates]


def judged(context: Context, candidate: Candidate) -> Candidate:
    """With the outcome of its gates. One that was not confirmed before carries the gates that were found then."""
    known = context.refuted.get(candidate.name)
    gates = candidate.gates if known is None else known
    note = candidate.note if known is None else f"{NOT_CONFIRMED}; {candidate.note}"
    return replace(candidate, gates=gates, outcome=outcome_of(gates, accepted(context.recipe.gates)), note=note)


def house_gates(recipe: Recipe) -> list[Gate]:
    """Where batches are served, outputs may not depend on batch-mates, unless the recipe has its own limit for it."""
    asked = any(gate.metric == "batch_variance" for gate in recipe.gates)
    batches = max(recipe.target.batch_sizes) > 1
    return (
        [Gate.model_validate({"metric": "batch_variance", "max": MOST_BATCH_VARIANCE})] if batches and not asked else []
    )


def with_speed(trial: Trial, timings: Sequence[Timing], baseline: Trial) -> dict[str, Value]:
    """All figures of a candidate: those of the first batch size, and the file's size against the baseline's."""
    size, base = trial.metrics["size_bytes"].value, baseline.metrics["size_bytes"].value
    ratio = {"size_ratio": Value(value=size / base, n=1)} if size and base else {}
    return trial.metrics | ratio | ({"speedup": timings[0].speedup} | timings[0].latency if timings else {})


def by_batch(timings: Sequence[Timing]) -> list[dict[str, object]]:
    return [
        {"batch": timing.speedup.batch, "speedup": vars(timing.speedup)}
        | {name: vars(value) for name, value in timing.latency.items()}
        for timing in timings
    ]


def _judge_one(
    context: Context,
    gate: Gate,
    baseline: Trial,
    trial: Trial,
    timings: Sequence[Timing],
    split: str,
    confidence: float,
) -> GateResult:
    if gate.max_drop is not None or gate.max_relative_drop is not None:
        pair = Paired(split=split, baseline=baseline.scores, candidate=trial.scores)
        return judge_drop(gate, context.inputs.metric, pair, confidence)
    if gate.metric in SPEED_METRICS:
        values = [timing.speedup if gate.metric == "speedup" else timing.latency[gate.metric] for timing in timings]
        return judge_value(gate, worst_of(gate, values))
    return judge_value(gate, with_speed(trial, timings, baseline).get(gate.metric))
