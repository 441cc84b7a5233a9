"""Baselines first: the float model in torch and in the target runtime. A speed-up is measured against the runtime's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.candidate import Value
from compress.code import code_digest
from compress.export.onnx import export_onnx
from compress.export.parity import check_parity, run_torch
from compress.gate import check_baseline, score_interval
from compress.measure.latency import Plan, compare, warm_up
from compress.recipe.spec import MODEL
from compress.stages.context import Context, export_versions, machine_key, relative_progress, runtime_versions
from compress.stages.trial import Trial, evaluate, time_against
from compress.store import Entry, Key

TORCH = "torch-eager"
RUNTIME = "onnxruntime-fp32"
# Parity already ties the file to the module; torch eager is slow, so its own score rests on fewer samples and says so.
TORCH_SAMPLES = 1000
# The float file against itself: its own percentiles, and the A/A run of the report.
SELF_TIMING = Plan(seconds=2.0, min_calls=460)


@dataclass(frozen=True, kw_only=True)
class FloatModel:
    """An exported float model: a file that a stage starts from.

    name: of the candidate that it is; reference: the file of the model itself where this is another, with fewer
    channels; every candidate's speed is measured against that one.
    """

    path: Path
    entry: Entry
    parity: dict[str, Any]
    name: str = MODEL
    reference: Path | None = None

    @property
    def timed_against(self) -> Path:
        return self.reference or self.path

    def label(self, stage: str) -> str:
        """What a stage that starts from it is called: `ptq`, or `prune/ptq`."""
        return stage if self.name == MODEL else f"{self.name}/{stage}"


def export_key(context: Context) -> Key:
    shapes = {name: [str(values.dtype), list(values.shape[1:])] for name, values in context.inputs.feeds.items()}
    return {
        "model": context.inputs.model_digest,
        "inputs": shapes,
        "code": code_digest("compress.export.parity"),
        "versions": export_versions() | runtime_versions(),
    }


def export_float(context: Context) -> FloatModel:
    """Export once, check parity with torch at batch sizes the exporter never saw."""

    def make(folder: Path) -> dict[str, Any]:
        inputs = context.inputs
        context.listener.update(0, 1, "exporting to ONNX")
        exported = export_onnx(inputs.model, inputs.feeds, folder / "model.onnx", inputs.output_names)
        parity = check_parity(
            inputs.model, folder / "model.onnx", inputs.splits["select"], threads=context.recipe.target.threads
        )
        return {"exporter": exported.exporter, "note": exported.note, "parity": parity}

    entry = context.store.obtain("export", export_key(context), make)
    return FloatModel(path=entry.path / "model.onnx", entry=entry, parity=entry.facts["parity"])


def measure_baseline(context: Context, model: FloatModel) -> tuple[Trial, list[dict[str, Any]]]:
    """Scores and timings of the float file, and the report's rows. Raises GateError when no better than chance."""
    trial = evaluate(context, model.path, model.entry.digest, "select", reference=None)
    check_baseline(context.inputs.metric, trial.scores, f"baseline {RUNTIME}")
    batch = context.recipe.target.batch_sizes[0]
    timing = time_against(context, model.path, model.path, batch, SELF_TIMING)
    rows = [
        {"name": TORCH, "runtime": "torch", "metrics": _torch_metrics(context, batch)},
        {"name": RUNTIME, "runtime": "onnxruntime", "metrics": trial.metrics | timing.latency},
    ]
    return trial, rows


def _torch_metrics(context: Context, batch: int) -> dict[str, Value]:
    """torch eager on the recipe's threads: the metric on `select` and the time of one batch."""
    entry = context.store.obtain("torch", torch_key(context, batch), lambda _folder: _measure_torch(context, batch))
    return {name: Value(**value) for name, value in entry.facts.items()}


def torch_key(context: Context, batch: int) -> Key:
    """What the figures of torch eager depend on."""
    return machine_key(context) | {
        "model": context.inputs.model_digest,
        "data": context.inputs.splits.digests["select"],
        "metric": context.inputs.metric_digest,
        "batch": batch,
        "code": code_digest("compress.stages.baseline"),
        "torch": export_versions(),
    }


def _measure_torch(context: Context, batch: int) -> dict[str, Any]:
    import torch

    from compress.measure.accuracy import evaluate as evaluate_callable
    from compress.measure.isolated import latency_values

    inputs = context.inputs
    before = torch.get_num_threads()
    torch.set_num_threads(context.recipe.target.threads)
    try:
        found = evaluate_callable(
            lambda feeds: run_torch(inputs.model, feeds),
            inputs.splits["select"].take(TORCH_SAMPLES),
            inputs.metric,
            64,
            relative_progress(context.listener, "torch eager on select"),
        )
        feeds = context.feeds(batch)

        def call() -> object:
            return run_torch(inputs.model, feeds)

        warm_up(call)
        timed = compare(call, call, Plan(seconds=2.0))
    finally:
        torch.set_num_threads(before)
    score = score_interval(found.scores)
    values = {inputs.metric.name: Value(**vars(score)), **latency_values([*timed.a_ms, *timed.b_ms], batch)}
    return {name: vars(value) for name, value in values.items()}
