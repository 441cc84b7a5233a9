"""QAT: train the float model under the target's rounding, serve the rounded result, and say what training alone gives.

The candidate is the exported file, made by the same quantizer as every other and judged like every other. Beside it
stands a control: the float model after as many steps of the same training, so that QAT is not credited with what more
training would have given anyway.
"""

import difflib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compress.candidate import Candidate, GateResult
from compress.code import code_digest
from compress.device import facts
from compress.errors import InputError
from compress.export.onnx import export_onnx
from compress.export.parity import check_parity
from compress.gate import Paired, judge_drop
from compress.quantize.learned import with_ranges
from compress.quantize.ort import quantize_static
from compress.quantize.schemes import SCHEMES, Scheme, narrowed
from compress.recipe.spec import COST_METRICS, SPEED_METRICS, Gate, Qat
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, StepTaken, export_versions, runtime_versions
from compress.stages.finish import Made, judge_made
from compress.stages.imitation import compare_with_imitation
from compress.stages.qat_train import (
    Job,
    compared_feeds,
    imitated_outputs,
    learned,
    plain_model,
    train_control,
    train_rounded,
)
from compress.stages.trial import Trial, evaluate
from compress.store import Entry

CONTROL = "the float model, trained as long without rounding"
SAFEST = ("u8s8-channel-reduced", "u8s8-channel")


def run(context: Context, spec: Qat, model: FloatModel, baseline: Trial) -> list[Candidate]:
    """One candidate, or none when the budget ends first; the next run then goes on from the checkpoint."""
    from compress.train.loop import OutOfTimeError

    started, found = time.monotonic(), []
    parent = best_rounded(context.earlier)
    job = Job(context, spec, model, scheme_of(spec, parent))
    _check_excluded(job)
    try:
        candidate = _make(job, baseline, parent)
        candidate = replace(candidate, seconds=round(time.monotonic() - started, 2))
        context.listener.found(candidate)
        found.append(candidate)
        if candidate.artefact:
            note_control(job, baseline, candidate)
    except OutOfTimeError as error:
        context.listener.note(str(error))
    return found


def best_rounded(earlier: Sequence[Candidate]) -> Candidate | None:
    """Of the statically quantized candidates so far, the one that training should start from.

    It misses the fewest gates of speed, size and memory, which training does not change; then it is the closest to the
    float model on real kernels.
    """
    known = [one for one in earlier if one.artefact and _scheme_in(one.name) is not None]
    return min(known, key=lambda one: (_missed_cost(one), -_closeness(one)), default=None)


def scheme_of(spec: Qat, parent: Candidate | None) -> Scheme:
    """The scheme that the recipe names, or that of the candidate to start from, or the safest for this CPU."""
    name = spec.method if spec.method != "auto" else _scheme_in(parent.name) if parent else None
    name = name or SAFEST[0 if facts.overflows_here() else 1]
    if spec.weight_bits < 8 and not name.startswith("u8s8-"):
        name = "u8s8-tensor"  # the narrow grid is that of s8
    scheme = next(scheme for scheme in SCHEMES if scheme.name == name)
    return narrowed(scheme, spec.weight_bits)


def deploy(job: Job, trained: Entry) -> Entry:
    """The trained weights exported without quantizers, then quantized with the ranges and scales they had."""
    context, exported = job.context, export_trained(job, trained)
    key = {
        "source": exported.digest, "learned": trained.facts["weights"], "ranges": learned(trained)[0],
        "scales": {name: scale.tolist() for name, scale in learned(trained)[1].items()},
        "scheme": _as_key(job.scheme), "exclude": sorted(job.spec.exclude),
        "calibration": context.inputs.splits.digests["calibration"],
        "code": code_digest("compress.quantize.ort"), "ranges code": code_digest("compress.quantize.ranges"),
        "versions": runtime_versions(),
    }  # fmt: skip
    return context.store.obtain("qat", key, lambda folder: _quantize(job, trained, exported, folder))


def export_trained(job: Job, trained: Entry) -> Entry:
    """The trained float model as a file of its own, in parity with the module."""
    context, inputs = job.context, job.context.inputs
    shapes = {name: [str(values.dtype), list(values.shape[1:])] for name, values in inputs.feeds.items()}
    key = {
        "model": inputs.model_digest, "weights": trained.facts["weights"], "inputs": shapes,
        "code": code_digest("compress.export.parity"), "versions": export_versions() | runtime_versions(),
    }  # fmt: skip

    def make(folder: Path) -> dict[str, Any]:
        model, path = plain_model(job, trained), folder / "model.onnx"
        context.listener.update(0, 1, "exporting the trained model")
        exported = export_onnx(model, inputs.feeds, path, inputs.output_names)
        threads = context.recipe.target.threads
        return {
            "exporter": exported.exporter,
            "parity": check_parity(model, path, inputs.splits["select"], threads=threads),
        }

    return context.store.obtain("export-trained", key, make)


def note_control(job: Job, baseline: Trial, candidate: Candidate) -> None:
    """A ledger row for the float model after the same training, judged as a float file on the same samples."""
    context, label, started = job.context, job.label, time.monotonic()
    name = f"{label}/control"
    try:
        trained = train_control(job)
        exported = export_trained(job, trained)
    except InputError as error:
        why = f"the control could not be trained: {error}"
        context.listener.note(f"  {name}: {why}")
        context.listener.stepped(StepTaken(name=name, changed=CONTROL, why=why, entered=False))
        return
    trial = evaluate(context, exported.path / "model.onnx", exported.digest, "select", reference=baseline.outputs)
    metric = context.inputs.metric.name
    before, after = baseline.metrics[metric].value or 0.0, trial.metrics[metric].value or 0.0
    reached = candidate.metrics[metric].value or 0.0
    record = trained.facts["record"]
    why = (
        f"{record['steps']} steps of the same training without rounding: {metric} {before:.4f} before, {after:.4f} "
        f"after (n={trial.metrics[metric].n}); {candidate.name} reaches {reached:.4f}"
    )
    control = Candidate(
        name=name, stage=label, form="float", parent=job.model.name, artefact=str(exported.path / "model.onnx"),
        metrics=trial.metrics, gates=[_drop(context, baseline, trial)], outcome="fail", note="no candidate: a control",
    )  # fmt: skip
    seconds = round(time.monotonic() - started, 2)
    context.listener.note(f"  {name}: {why}")
    step = StepTaken(name=name, changed=CONTROL, why=why, entered=True, made=(control,), seconds=seconds)
    context.listener.stepped(step)


def _make(job: Job, baseline: Trial, parent: Candidate | None) -> Candidate:
    """Train, deploy and judge; what breaks on the way is a failed candidate with the reason."""
    try:
        trained = train_rounded(job)
        return _candidate(job, baseline, trained, parent)
    except InputError as error:
        return Candidate(
            name=f"{job.label}/{job.scheme.name}", stage=job.label, form="int8",
            parent=job.model.name, note=str(error),
        )  # fmt: skip


def _candidate(job: Job, baseline: Trial, trained: Entry, parent: Candidate | None) -> Candidate:
    made, exported, note = deploy(job, trained), export_trained(job, trained), _training_note(trained)
    path = made.path / "model.onnx"
    compared = compare_with_imitation(path, compared_feeds(job), imitated_outputs(trained))
    made_file = Made(
        name=f"{job.label}/{job.scheme.name}", stage=job.label, parent=job.model.name,
        entry=made, source=exported.path / "model.onnx", notes=(note, compared.note),
        parity=exported.facts["parity"] | {"note": f"{exported.facts['parity']['note']}; {compared.note}"},
    )  # fmt: skip
    candidate, trial = judge_made(job.context, job.model, baseline, made_file)
    return _kept_or_not(job.context, candidate, trial, parent, baseline)


def _kept_or_not(
    context: Context, candidate: Candidate, trial: Trial, parent: Candidate | None, baseline: Trial
) -> Candidate:
    """Training must pay: no better than the file that cost no training, on the same samples, is rolled back."""
    if parent is None:
        return candidate
    path = Path(str(parent.artefact))
    before = evaluate(context, path, context.store.digest_at(path.parent), "select", reference=baseline.outputs)
    drop = _drop(context, before, trial)
    value, low, high = (0.0 - (end or 0.0) for end in (drop.value, drop.high, drop.low))
    words = f"{drop.metric} {value:+.4f} [{low:+.4f}, {high:+.4f}] against {parent.name} ({drop.note})"
    better = low > 0 or (value >= 0 and candidate.outcome == "pass" and parent.outcome != "pass")
    if better:
        return replace(candidate, note=f"{candidate.note}; {words}")
    return replace(
        candidate, note=f"rolled back, no better than without training: {words}; {candidate.note}", outcome="fail"
    )


def _drop(context: Context, baseline: Trial, trial: Trial) -> GateResult:
    """The paired drop of the recipe's metric on select, with its bounds; it is held to nothing."""
    metric = context.inputs.metric
    pair = Paired(split="select", baseline=baseline.scores, candidate=trial.scores)
    return judge_drop(Gate(metric=metric.name, max_drop=0.0, max_relative_drop=None), metric, pair)


def _quantize(job: Job, trained: Entry, exported: Entry, folder: Path) -> dict[str, Any]:
    source, (ranges, scales) = exported.path / "model.onnx", learned(trained)
    calibrated = job.calibrated(source)
    unknown = sorted(name for name in ranges if name not in calibrated)
    if unknown:
        raise AssertionError(f"the trained export has no tensor {unknown[0]}: it is another graph than before")
    settled, left = with_ranges(calibrated, ranges), job.left_in_float(source, calibrated)
    quantize_static(
        source, folder / "model.onnx", job.scheme, settled, job.op_types, left, weight_scales=scales or None
    )
    return {"left": left, "missing": trained.facts["missing"]}


def _training_note(trained: Entry) -> str:
    record, missing = trained.facts["record"], trained.facts["missing"]
    parts = [
        f"trained {record['steps']} steps on {record['samples']} samples ({record['step_ms']:.0f} ms a step, "
        f"{record['wait_share']:.0%} of it waiting for samples), epoch {record['best_epoch']} of "
        f"{len(record['epochs'])} kept by {record['best_score']:.4f} on held-out samples"
    ]
    if record["stopped"]:
        parts.append(f"ended early: {record['stopped']}")
    if missing:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        parts.append(f"{len(missing)} rounded tensors arise inside a forward and were trained in float ({shown})")
    return "; ".join(parts)


def _scheme_in(name: str) -> str | None:
    """The static scheme that a candidate's name ends in: `ptq/u8s8-tensor-w4` -> u8s8-tensor."""
    last = name.rpartition("/")[2]
    static = [scheme.name for scheme in SCHEMES if scheme.kind == "static" and last.startswith(scheme.name)]
    return max(static, key=len, default=None)


def _missed_cost(candidate: Candidate) -> int:
    fixed = (*SPEED_METRICS, *COST_METRICS)
    return sum(gate.outcome != "pass" and gate.metric in fixed for gate in candidate.gates)


def _closeness(candidate: Candidate) -> float:
    value = candidate.metrics.get("sqnr_db")
    return float("-inf") if value is None or value.value is None else value.value


def _as_key(scheme: Scheme) -> dict[str, Any]:
    return vars(scheme)


def _check_excluded(job: Job) -> None:
    """Raise InputError when `exclude` names a node that is not in the exported file."""
    import onnx

    names = [node.name for node in onnx.load(job.model.path).graph.node]
    for name in job.spec.exclude:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            remedy = f"Did you mean '{close[0]}'?" if close else f"Nodes are {', '.join(names[:6])}, ..."
            raise InputError(f"{job.place}.exclude", f"no node '{name}' in the exported model", remedy)
