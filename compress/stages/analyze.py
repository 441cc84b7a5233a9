"""The analyzer's page of a run: what the model is made of, where its time goes in the target runtime, what can help."""

from pathlib import Path
from typing import Any

from compress.analyze.methods import Asked
from compress.analyze.summary import analysis_dict
from compress.code import code_digest
from compress.errors import InputError
from compress.measure import isolated
from compress.measure.stats import Interval
from compress.probe.probe import probe
from compress.stages.baseline import SELF_TIMING, FloatModel
from compress.stages.context import Context, export_versions, machine_key
from compress.stages.trial import time_against
from compress.stages.verdict import Judged, Timed, ceilings_of_this_machine, elasticity_of, judge_file, undisturbed
from compress.store import Key

TOP_OPS = 10
# Advice that needs nothing but the file, so that a run can say what it gives: its prediction and its probe.
APPLICABLE = {"batch": ("batch 8", "batch-8")}
REMEDY_SECONDS = 4.0


def run(context: Context, model: FloatModel) -> tuple[dict[str, Any], Judged]:
    """`compress.analysis/1` of the float file at the recipe's first batch size, and the verdict on it.

    Parameters and work are those of the torch module for one sample; operators are those of the file.
    """
    batch = context.recipe.target.batch_sizes[0]
    counted = _count(context)
    kernels = profile(context, model.path, model.entry.digest)
    whole, note = undisturbed(time_against(context, model.path, model.path, batch, SELF_TIMING).calls_ms)
    timed = Timed(end_to_end_ms=whole, kernels=kernels, batch=batch, elasticity=_elasticity(context, model), note=note)
    ceilings = ceilings_of_this_machine(context.recipe.target.threads, context.listener.note)
    shapes = {name: values.shape for name, values in context.feeds(batch).items()}
    target = target_of(context)
    judged = judge_file(model.path, timed, ceilings, Asked(target_speedup=target), shapes)
    probes = _remedies(context, model, judged)
    if probes:
        judged = judge_file(model.path, timed, ceilings, Asked(target_speedup=target, probes=probes), shapes)
    device = judged.analysis["device"] | {"ceilings": ceilings.as_dict()}
    runtime = {"top_ops_runtime": kernels[:TOP_OPS], "runtime_total_ms": sum(row["time_ms"] for row in kernels)}
    ops = [_with_share(op, timed.end_to_end_ms.value) for op in judged.analysis["ops"]]
    return judged.analysis | {"model": counted["model"], "device": device, "ops": ops} | runtime, judged


def _with_share(op: dict[str, Any], whole_ms: float) -> dict[str, Any]:
    return op | {"time_share": None if op["time_ms"] is None else op["time_ms"] / whole_ms}


def target_of(context: Context) -> float | None:
    """The largest speed-up that a gate of the recipe asks for."""
    asked = [gate.min for gate in context.recipe.gates if gate.metric == "speedup" and gate.min is not None]
    return max(asked, default=None)


def profile(context: Context, path: Path, digest: str) -> list[dict[str, Any]]:
    """Time per kernel of a file in the target runtime, slowest first: [{name, op, time_ms, share}]."""
    batch = context.recipe.target.batch_sizes[0]

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, "profiling operators")
        return {"nodes": isolated.profile(path, context.feeds(batch), context.bench)}

    nodes = context.store.obtain("profile", profile_key(context, digest), make).facts["nodes"]
    total = sum(node["time_ms"] for node in nodes) or 1.0
    ordered = sorted(nodes, key=lambda node: (-node["time_ms"], node["name"]))
    return [node | {"share": node["time_ms"] / total} for node in ordered]


def _elasticity(context: Context, model: FloatModel) -> float | None:
    batch = context.recipe.target.batch_sizes[0]

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, "timing twice the batch")
        return {"elasticity": elasticity_of(model.path, context.feeds(batch), context.bench)}

    found = context.store.obtain("elasticity", profile_key(context, model.entry.digest), make).facts["elasticity"]
    return None if found is None else float(found)


def _remedies(context: Context, model: FloatModel, judged: Judged) -> dict[str, Interval]:
    """What the advised remedies give, measured, by the name of their prediction."""
    advised = [one["remedy"] for one in judged.analysis["verdict"]["advice"] if one["remedy"] in APPLICABLE]
    found = {}
    for prediction, method in (APPLICABLE[remedy] for remedy in advised):
        speedup = _probed(context, model, method)
        if speedup is not None:
            found[prediction] = speedup
    return found


def _probed(context: Context, model: FloatModel, method: str) -> Interval | None:
    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, f"applying the remedy: {method}")
        try:
            return probe(model.path, method, context.feeds(1), context.bench, REMEDY_SECONDS).as_dict()
        except InputError as error:
            return {"speedup": None, "note": str(error)}

    key = profile_key(context, model.entry.digest) | {"method": method, "probe": code_digest("compress.probe.probe")}
    facts = context.store.obtain("remedy", key, make).facts
    return Interval(**facts["speedup"]) if facts["speedup"] else None


def profile_key(context: Context, digest: str) -> Key:
    """What a profile depends on."""
    batch = context.recipe.target.batch_sizes[0]
    return machine_key(context) | {"file": digest, "batch": batch, "code": code_digest("compress.measure.worker")}


def count_key(context: Context) -> Key:
    """What the counted operators depend on."""
    return {
        "model": context.inputs.model_digest,
        "inputs": {name: [str(v.dtype), list(v.shape[1:])] for name, v in context.inputs.feeds.items()},
        "code": code_digest("compress.analyze.summary"),
        "trace": code_digest("compress.analyze.trace"),
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
