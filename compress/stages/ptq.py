"""PTQ: try every plausible scheme on the target, measure both accuracy and speed, judge each on `select`."""

import difflib
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.analyze.onnx_table import table_from_onnx
from compress.candidate import Candidate
from compress.code import code_digest
from compress.errors import InputError
from compress.export.audit import audit_graph
from compress.files import sha256_of
from compress.gate import accepted, outcome_of
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.quantize.ort import check_saturation, op_types_for, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import LINEAR_HEAVY, Scheme, schemes_for
from compress.recipe.spec import Ptq
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, machine_key, relative_progress, runtime_versions
from compress.stages.judge import by_batch, judge, with_speed
from compress.stages.trial import Trial, evaluate, time_against
from compress.store import Entry, Key

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

SCREENING = Plan(seconds=2.0, min_calls=460)
SATURATION_SAMPLES = 64
LINEAR_OPS = frozenset({"onnx::MatMul", "onnx::Gemm"})


@dataclass(frozen=True)
class Source:
    """The float file to quantize, and its activation ranges: found once for all schemes, only when one is missing."""

    context: Context
    model: FloatModel
    linear_share: float

    @property
    def op_types(self) -> tuple[str, ...]:
        return op_types_for(linear_heavy=self.linear_share >= LINEAR_HEAVY)

    @cached_property
    def ranges(self) -> "TensorsData":
        calibration = self.context.inputs.splits["calibration"]
        return calibrate(
            self.model.path, calibration, self.op_types, relative_progress(self.context.listener, "calibrating")
        )


def run(context: Context, spec: Ptq, model: FloatModel, baseline: Trial) -> list[Candidate]:
    """One candidate per scheme tried, in the table's order. A scheme that breaks is a failed candidate."""
    _check_excluded(spec, model.path)
    source = Source(context, model, linear_share(model.path))
    found = []
    for scheme in schemes_for(linear_share=source.linear_share, method=spec.method, weight_bits=spec.weight_bits):
        if context.out_of_time():
            context.listener.note(f"budget of {context.recipe.budget.minutes:g} minutes used up before {scheme.name}")
            break
        candidate = _try(context, spec, source, scheme, baseline)
        context.listener.found(candidate)
        found.append(candidate)
    return found


def scheme_key(context: Context, spec: Ptq, model_digest: str, scheme: Scheme) -> Key:
    """What a quantized file depends on; the same wherever it is made."""
    return {
        "source": model_digest,
        "scheme": asdict(scheme),
        "exclude": sorted(spec.exclude),
        "calibration": context.inputs.splits.digests["calibration"],
        "code": code_digest("compress.quantize.ort"),
        "ranges": code_digest("compress.quantize.ranges"),
        "versions": runtime_versions(),
    }


def audit_key(context: Context, digest: str) -> Key:
    """What an audit depends on."""
    return machine_key(context) | {"file": digest, "code": code_digest("compress.export.audit")}


def linear_share(path: Path) -> float:
    """Share of the multiply-accumulates of an ONNX file that are matrix products."""
    ops = table_from_onnx(path).ops
    total = sum(op.macs for op in ops)
    return sum(op.macs for op in ops if op.op in LINEAR_OPS) / total if total else 0.0


def _try(context: Context, spec: Ptq, source: Source, scheme: Scheme, baseline: Trial) -> Candidate:
    started = time.monotonic()
    name = f"{spec.label}/{scheme.name}"
    try:
        made = _quantize(context, spec, source, scheme)
        path = made.path / "model.onnx"
        audit = _audit(context, source, made)
        trial = evaluate(context, path, made.digest, "select", reference=baseline.outputs)
        timings = [
            time_against(context, source.model.path, path, batch, SCREENING)
            for batch in context.recipe.target.batch_sizes
        ]
    except InputError as error:
        return Candidate(
            name=name,
            stage=spec.label,
            form="int8",
            parent=spec.from_ or "model",
            note=str(error),
            seconds=time.monotonic() - started,
        )
    gates = judge(context, baseline, trial, timings, "select")
    return Candidate(
        name=name, stage=spec.label, form="int8", parent=spec.from_ or "model",
        artefact=str(path), sha256=sha256_of(path),
        metrics=with_speed(trial, timings, baseline), by_batch=by_batch(timings), gates=gates,
        outcome=outcome_of(gates, accepted(context.recipe.gates)),
        audit=audit, parity=_parity(source, trial), note=_note(made.facts, audit),
        seconds=round(time.monotonic() - started, 2),
    )  # fmt: skip


def _quantize(context: Context, spec: Ptq, source: Source, scheme: Scheme) -> Entry:
    def make(folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, f"{scheme.name}: quantizing")
        target = folder / "model.onnx"
        masks: list[str] = []
        if scheme.kind == "static":
            masks = mask_nodes(source.model.path, source.ranges)
            quantize_static(source.model.path, target, scheme, source.ranges, source.op_types, [*spec.exclude, *masks])
        else:
            quantize_dynamic(source.model.path, target, scheme, spec.exclude)
        return {"masks": masks, "exclude": list(spec.exclude)}

    return context.store.obtain("ptq", scheme_key(context, spec, source.model.entry.digest, scheme), make)


def _audit(context: Context, source: Source, made: Entry) -> dict[str, Any]:
    """Which kernels run, and whether they overflow. Depends on the machine, unlike the file."""
    path = made.path / "model.onnx"

    def make(_folder: Path) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
            optimised = Path(scratch) / "optimised.onnx"
            opened = isolated.open_isolated(path, optimised, context.bench)
            audit = audit_graph(optimised, opened["providers"], context.recipe.target.provider)
        feeds, _ = next(context.inputs.splits["calibration"].batches(SATURATION_SAMPLES))
        return audit | {"saturation": check_saturation(path, source.model.path, feeds, context.recipe.target.threads)}

    return context.store.obtain("audit", audit_key(context, made.digest), make).facts


def _parity(source: Source, trial: Trial) -> dict[str, Any]:
    """The float file's parity with torch, and how far this file's outputs are from the float file's."""
    agreement = trial.metrics["agreement"].value
    return source.model.parity | {
        "note": f"{source.model.parity['note']}; this file agrees with the float file on {agreement:.4f} of select"
    }


def _note(made: dict[str, Any], audit: dict[str, Any]) -> str:
    parts = [audit["note"]]
    if made["masks"]:
        parts.append(f"attention-mask nodes left in float: {', '.join(made['masks'])}")
    if audit["saturation"]["saturates"]:
        lost_db = audit["saturation"]["lost_db"]
        parts.append(f"integer sums overflow on this CPU ({lost_db:.1f} dB lost): used only if nothing else passes")
    return "; ".join(parts)


def _check_excluded(spec: Ptq, path: Path) -> None:
    """Raise InputError when `exclude` names a node that is not in the exported file."""
    import onnx

    names = [node.name for node in onnx.load(path).graph.node]
    for name in spec.exclude:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            remedy = f"Did you mean '{close[0]}'?" if close else f"Nodes are {', '.join(names[:6])}, ..."
            raise InputError(f"stages.{spec.label}.exclude", f"no node '{name}' in the exported model", remedy)
