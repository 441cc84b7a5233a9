"""From a file that a stage has made to a judged candidate: audit, scores, timing, gates."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.candidate import Candidate
from compress.files import sha256_of
from compress.stages.baseline import FloatModel
from compress.stages.context import Context
from compress.stages.judge import by_batch, judge, judged, with_speed
from compress.stages.ptq_try import SCREENING, audit_file
from compress.stages.trial import Trial, evaluate, time_against
from compress.store import Entry


@dataclass(frozen=True, kw_only=True)
class Made:
    """entry: holds `model.onnx`; source: the float file it was quantized from, None for a file that is float itself;
    notes: sentences for the report.
    """

    name: str
    stage: str
    parent: str
    entry: Entry
    source: Path | None
    parity: dict[str, Any]
    notes: tuple[str, ...] = ()


def judge_made(context: Context, model: FloatModel, baseline: Trial, made: Made) -> tuple[Candidate, Trial]:
    """Measure the file on `select` against the float model's own file, and hold it to every gate."""
    path = made.entry.path / "model.onnx"
    audit = audit_file(context, made.entry, made.source) if made.source else None
    trial = evaluate(context, path, made.entry.digest, "select", reference=baseline.outputs)
    timings = [
        time_against(context, model.timed_against, path, batch, SCREENING)
        for batch in context.recipe.target.batch_sizes
    ]
    gates = judge(context, baseline, trial, timings, "select")
    candidate = Candidate(
        name=made.name, stage=made.stage, form="int8" if made.source else "float", parent=made.parent,
        artefact=str(path), sha256=sha256_of(path),
        metrics=with_speed(trial, timings, baseline), by_batch=by_batch(timings), gates=gates,
        audit=audit, parity=made.parity,
        note="; ".join([*([audit["note"]] if audit else []), *made.notes]),
    )  # fmt: skip
    return judged(context, candidate), trial
