"""The analyzer's first page: what the model is made of, and where its time goes in the target runtime."""

from pathlib import Path
from typing import Any

from compress.analyze.summary import analysis_dict
from compress.code import code_digest
from compress.measure import isolated
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, export_versions, machine_key
from compress.store import Key

TOP_OPS = 10


def run(context: Context, model: FloatModel) -> dict[str, Any]:
    """`compress.analysis/1` of the recipe's model for one sample, with the float file's measured operators."""
    analysis = _count(context)
    nodes = profile(context, model.path, model.entry.digest)
    return analysis | {"top_ops_runtime": nodes[:TOP_OPS], "runtime_total_ms": sum(node["time_ms"] for node in nodes)}


def profile(context: Context, path: Path, digest: str) -> list[dict[str, Any]]:
    """Time per node of a file in the target runtime, slowest first: [{name, op, time_ms, share}]."""
    batch = context.recipe.target.batch_sizes[0]

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, "profiling operators")
        return {"nodes": isolated.profile(path, context.feeds(batch), context.bench)}

    nodes = context.store.obtain("profile", profile_key(context, digest), make).facts["nodes"]
    total = sum(node["time_ms"] for node in nodes) or 1.0
    ordered = sorted(nodes, key=lambda node: (-node["time_ms"], node["name"]))
    return [node | {"share": node["time_ms"] / total} for node in ordered]


def profile_key(context: Context, digest: str) -> Key:
    """What a profile depends on."""
    batch = context.recipe.target.batch_sizes[0]
    return machine_key(context) | {"file": digest, "batch": batch, "code": code_digest("compress.measure.worker")}


def count_key(context: Context) -> Key:
    """What the counted operators depend on."""
    return {
        "model": context.inputs.model_digest,
        "inputs": {name: [str(v.dtype), list(v.shape[1:])] for name, v in context.inputs.feeds.items()},
        "batch": 1,
        "code": code_digest("compress.stages.analyze"),
        "versions": export_versions(),
    }


def _count(context: Context) -> dict[str, Any]:
    from compress.analyze.trace import trace
    from compress.export.onnx import call_arguments

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, "counting operators")
        args, kwargs = call_arguments(context.feeds(1))
        return analysis_dict(trace(context.inputs.model, args, kwargs))

    return context.store.obtain("analysis", count_key(context), make).facts
