"""Structured pruning: rounds of cutting and fine-tuning, then the recipe's quantization of what came out.

Every candidate is a file, judged like any other: the float model with fewer channels, and its quantized forms.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compress.candidate import Candidate, Value
from compress.errors import InputError
from compress.recipe.spec import MODEL, Gate, Prune, Ptq, Qat, Stage
from compress.stages import ptq, qat
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, StepTaken
from compress.stages.finish import Made, judge_made
from compress.stages.floats import narrow_context
from compress.stages.prune_cut import Job, cut
from compress.stages.prune_train import finetune, finished
from compress.stages.trial import Trial
from compress.store import Entry

CHANGED = "channels cut, then trained to follow the float model"
# Where a recipe promises nothing about its metric, a round that lost more points than this did not recover.
USUAL_DROP = 0.01


def run(context: Context, spec: Prune, model: FloatModel, baseline: Trial) -> list[Candidate]:
    """The pruned float model and its quantized files; none when the budget ends first, and the next run goes on."""
    from compress.train.loop import OutOfTimeError

    job, started = Job(context, spec, model), time.monotonic()
    try:
        cut_entry, trained = _rounds(job)
        small = finished(job, trained)
        candidate = _candidate(job, baseline, small, cut_entry)
    except OutOfTimeError as error:
        context.listener.note(str(error))
        return []
    except InputError as error:
        failed = Candidate(name=spec.label, stage=spec.label, form="float", parent=model.name, note=str(error))
        failed = replace(failed, seconds=round(time.monotonic() - started, 2))
        context.listener.found(failed)
        return [failed]
    candidate = replace(candidate, seconds=round(time.monotonic() - started, 2))
    context.listener.found(candidate)
    return [candidate, *_quantized(job, small, baseline)]


def finishers(stages: Sequence[Stage], spec: Prune) -> list[Ptq | Qat]:
    """The quantization stages that finish a pruned candidate: those named, else the recipe's first ptq."""
    known = [stage for stage in stages if isinstance(stage, Ptq | Qat)]
    if spec.then is None:
        return [stage for stage in known if stage.kind == Ptq.kind and stage.from_ in (None, MODEL)][:1]
    return [stage for name in spec.then for stage in known if stage.label == name]


def _rounds(job: Job) -> tuple[Entry, Entry]:
    """Cut and train, round after round; ends early with the last round that recovered, if any did."""
    done: tuple[Entry, Entry] | None = None
    for number in range(1, job.spec.steps + 1):
        started = time.monotonic()
        cut_entry = cut(job, number, done[1] if done else None)
        _tell_refusals(job, cut_entry, number)
        trained = finetune(job, cut_entry)
        recovered, why = _recovery(job, number, cut_entry, trained)
        name, seconds = f"{job.spec.label}/round-{number}", round(time.monotonic() - started, 2)
        job.context.listener.note(f"  {name}: {why}")
        gain = f"macs {cut_entry.facts['macs_share']:.2f} of the whole" if recovered or done is None else ""
        job.context.listener.stepped(
            StepTaken(name=name, changed=CHANGED, why=why, entered=True, gain=gain, seconds=seconds)
        )
        if not recovered and done is not None:
            break
        done = (cut_entry, trained)
        if not recovered:
            break
    assert done is not None
    return done


def _recovery(job: Job, number: int, cut_entry: Entry, trained: Entry) -> tuple[bool, str]:
    """Whether a round came back to the float model's score on held-out samples, and the round in words."""
    facts, record, metric = cut_entry.facts, trained.facts["record"], job.context.inputs.metric
    whole, after, reached = trained.facts["float_score"], trained.facts["cut_score"], record["best_score"]
    allowed = _allowed_drop(job.context.recipe.gates, metric.name, abs(whole))
    recovered = metric.sign * (whole - reached) <= allowed
    words = (
        f"{job.spec.by} {facts['cost']:.2f} of the whole predicted, {job.share(number):.2f} asked; macs "
        f"{facts['macs_share']:.2f}, params {facts['params_share']:.2f}; {metric.name} on held-out samples "
        f"{whole:.4f} whole, {after:.4f} cut, {reached:.4f} after {record['steps']} steps"
    )
    words += "" if recovered else f": not recovered to within {allowed:g}"
    return recovered, words + (f"; ended early: {record['stopped']}" if record["stopped"] else "")


def _allowed_drop(gates: Sequence[Gate], metric: str, score: float) -> float:
    mine = [gate for gate in gates if gate.metric == metric]
    absolute = [gate.max_drop for gate in mine if gate.max_drop is not None]
    relative = [gate.max_relative_drop * score for gate in mine if gate.max_relative_drop is not None]
    return max([USUAL_DROP, *absolute, *relative])


def _tell_refusals(job: Job, made: Entry, number: int) -> None:
    for layer, reason in made.facts["refused"] if number == 1 else ():
        job.context.listener.note(f"  {job.spec.label}: {layer} stays whole, {reason}")


def _candidate(job: Job, baseline: Trial, small: FloatModel, cut_entry: Entry) -> Candidate:
    """The float candidate, with what was achieved beside what was asked."""
    made = Made(
        name=job.spec.label, stage=job.spec.label, parent=job.model.name, entry=small.entry, source=None,
        parity=small.parity, notes=_notes(cut_entry, small),
    )  # fmt: skip
    candidate, _ = judge_made(job.context, small, baseline, made)
    facts = cut_entry.facts
    counts = {name: Value(value=facts[name], n=1) for name in ("macs", "params")}
    return replace(
        candidate,
        metrics=candidate.metrics | counts,
        note=f"{_achieved(job, candidate, facts)}; {candidate.note}",
    )


def _achieved(job: Job, candidate: Candidate, facts: dict[str, Any]) -> str:
    """Shares of the whole model that are left: asked, and measured."""
    speed = candidate.metrics["speedup"]
    measured = f"{1 / speed.value:.2f}" if speed.value else "not measured"
    return (
        f"asked {job.spec.by} {job.spec.keep:.2f}; left are latency {measured} (batch {speed.batch}), macs "
        f"{facts['macs_share']:.2f}, params {facts['params_share']:.2f}"
    )


def _notes(cut_entry: Entry, small: FloatModel) -> tuple[str, ...]:
    facts, apart = cut_entry.facts, small.entry.facts["reloaded"]["max_abs"]
    narrowed = sum(facts["widths"][name] < units for name, units in facts["whole"].items())
    same = "identical outputs" if apart == 0 else f"outputs within {apart:.1g}"
    return (
        f"{narrowed} of {len(facts['whole'])} groups of channels narrowed, {len(facts['refused'])} layers refused",
        f"reloaded from its channel map in a fresh process with {same}",
    )


def _quantized(job: Job, small: FloatModel, baseline: Trial) -> list[Candidate]:
    """What the recipe's quantization makes of the pruned model; a dearer stage only where the one before missed."""
    found: list[Candidate] = []
    context = narrow_context(job.context, small.entry)
    for stage in finishers(job.context.recipe.stages, job.spec):
        if any(one.outcome == "pass" for one in found):
            break
        known = replace(context, earlier=tuple(found))
        if isinstance(stage, Ptq):
            found += ptq.run(known, stage, small, baseline)
        else:
            found += qat.run(known, stage, small, baseline)
    return found
