"""Try one file on the target: scores on a split, closeness to the float model, size, memory, paired timing; cached."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.candidate import Value
from compress.code import code_digest
from compress.data import Array
from compress.gate import score_interval
from compress.measure import isolated
from compress.measure.accuracy import Runner, evaluate_file, fidelity
from compress.measure.batching import batch_variance
from compress.measure.isolated import Bench, latency_values
from compress.measure.latency import Plan
from compress.measure.stats import Floats
from compress.stages.context import Context, machine_key, read_array, relative_progress, write_array
from compress.store import Key

USUAL_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class Trial:
    """scores: (n,) per sample of the split; outputs: (k, ...) of the first samples; metrics by name."""

    scores: Floats
    outputs: Array
    metrics: dict[str, Value]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """speedup: of the file over the baseline at one batch size; a_a: the self-comparison made just before.

    calls_ms: every timed call of the file.
    """

    speedup: Value
    latency: dict[str, Value]
    calls_ms: list[float]
    a_a: dict[str, Any]
    pressure: dict[str, Any]


def evaluate(context: Context, path: Path, digest: str, split: str, *, reference: Array | None) -> Trial:
    """Scores of the file on a split, its size and memory. reference: the float model's outputs (k, ...), or None."""
    inputs, target = context.inputs, context.recipe.target
    runner = Runner(provider=target.provider, threads=target.threads, batch=max(target.batch_sizes))

    def make(folder: Path) -> dict[str, Any]:
        progress = relative_progress(context.listener, f"{path.parent.name.rsplit('-', 1)[0]} on {split}")
        found = evaluate_file(path, inputs.splits[split], inputs.metric, runner, progress)
        write_array(folder, "scores", found.scores)
        write_array(folder, "outputs", found.outputs)
        memory = isolated.peak_memory(path, context.feeds(runner.batch), context.bench)
        return {"size_bytes": path.stat().st_size, "peak_memory_bytes": memory, "batch": runner.batch}

    entry = context.store.obtain("scores", scores_key(context, digest, split), make)
    scores = read_array(entry.path, "scores").astype(np.float64)
    outputs = read_array(entry.path, "outputs")
    metrics = {inputs.metric.name: Value(**vars(score_interval(scores)))} | _cost(entry.facts)
    metrics["batch_variance"] = _batch_variance(context, path, digest, split)
    if reference is not None:
        metrics |= fidelity(reference, outputs)
    return Trial(scores=scores, outputs=outputs, metrics=metrics)


def batch_key(context: Context, digest: str, split: str) -> Key:
    """What the dependence on batch-mates depends on."""
    return machine_key(context) | {
        "file": digest,
        "data": context.inputs.splits.digests[split],
        "batch": _mates(context),
        "code": code_digest("compress.measure.batching"),
    }


def scores_key(context: Context, digest: str, split: str) -> Key:
    """What the scores of a file on a split depend on."""
    return machine_key(context) | {
        "file": digest,
        "data": context.inputs.splits.digests[split],
        "metric": context.inputs.metric_digest,
        "batch": max(context.recipe.target.batch_sizes),
        "code": code_digest("compress.measure.accuracy"),
    }


def timing_key(context: Context, baseline: Path, path: Path, batch: int, plan: Plan) -> Key:
    """What a paired timing depends on."""
    return machine_key(context) | {
        "baseline": _sha(baseline),
        "file": _sha(path),
        "batch": batch,
        "plan": asdict(plan),
        "code": code_digest("compress.measure.worker"),
    }


def time_against(context: Context, baseline: Path, path: Path, batch: int, plan: Plan) -> Timing:
    """Paired timing of the file against the baseline file at one batch size, in a process of its own."""
    key = timing_key(context, baseline, path, batch, plan)
    bench = Bench(provider=context.bench.provider, threads=context.bench.threads, plan=plan)
    entry = context.store.obtain(
        "timing", key, lambda _folder: isolated.compare_files(baseline, path, context.feeds(batch), bench)
    )
    facts = entry.facts
    note = "" if facts["a_a"]["clean"] else "the machine was noisy: the interval was widened by the A/A run"
    return Timing(
        speedup=Value(**facts["ratio"], batch=batch, note=note),
        latency=latency_values(facts["b_ms"], batch),
        calls_ms=facts["b_ms"],
        a_a=facts["a_a"],
        pressure=facts["pressure"],
    )


def _batch_variance(context: Context, path: Path, digest: str, split: str) -> Value:
    target, batch = context.recipe.target, _mates(context)

    def make(_folder: Path) -> dict[str, Any]:
        runner = Runner(provider=target.provider, threads=target.threads, batch=batch)
        value, n = batch_variance(path, context.inputs.splits[split], runner)
        return {"value": value, "n": n}

    facts = context.store.obtain("batching", batch_key(context, digest, split), make).facts
    return Value(value=facts["value"], n=facts["n"], batch=batch, note="largest change of an output against batch 1")


def _mates(context: Context) -> int:
    """The largest batch that is served, or a usual one where the recipe serves single samples."""
    largest = max(context.recipe.target.batch_sizes)
    return largest if largest > 1 else USUAL_BATCH


def _cost(facts: dict[str, Any]) -> dict[str, Value]:
    memory = facts["peak_memory_bytes"]
    return {
        "size_bytes": Value(value=facts["size_bytes"], n=1),
        "peak_memory_bytes": Value(
            value=memory,
            n=1 if memory is not None else 0,
            batch=facts["batch"],
            note="" if memory is not None else "not measured: the system does not tell",
        ),
    }


def _sha(path: Path) -> str:
    from compress.files import sha256_of

    return sha256_of(path)
