"""What follows a cut: fine-tuning towards the float model, export, and the proof in a fresh process."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.code import code_digest
from compress.data import Split
from compress.device.facts import versions
from compress.errors import InputError
from compress.export.onnx import export_onnx
from compress.export.parity import check_parity, run_torch
from compress.files import write_json, write_with
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, export_versions, runtime_versions
from compress.stages.prune_cut import Job, model_of
from compress.stages.qat_train import check_training
from compress.store import Entry
from compress.train.plan import TrainPlan

if TYPE_CHECKING:
    from torch import nn

    from compress.recipe.spec import Prune
    from compress.train.loop import Task

SCORE_BATCH = 256
# The same sums in the same order; another number of threads would be another order.
SAME = 1e-6


def check(context: Context, spec: "Prune") -> None:
    """Raise InputError when the data cannot train, or no parameter may."""
    place = f"stages.{spec.label}.finetune.label_weight"
    check_training(context, spec.label, place, spec.finetune.label_weight)
    if not any(parameter.requires_grad for parameter in context.inputs.model.parameters()):
        fact = "the model has no trainable parameter"
        raise InputError(f"stages.{spec.label}", fact, "Set requires_grad on what may be pruned")


def finetune(job: Job, pruned: Entry) -> Entry:
    """The pruned model trained to give what the float model gives: its channel map, weights and record."""
    import torch

    inputs, tuned, known = job.context.inputs, job.spec.finetune, versions()
    key = {
        "pruned": pruned.digest,
        "teacher": inputs.model_digest,
        "train": inputs.splits.digests["train"],
        "metric": inputs.metric_digest,
        "plan": asdict(plan_of(job)),
        "loss": {"temperature": tuned.temperature, "label_weight": tuned.label_weight, "classes": _classes(job)},
        "threads": torch.get_num_threads(),
        "code": code_digest("compress.train.loop"),
        "versions": {name: known[name] for name in ("torch", "accelerate", "numpy") if name in known},
    }
    return job.context.store.obtain("train", key, lambda folder: _finetune(job, pruned, folder))


def plan_of(job: Job) -> TrainPlan:
    tuned = job.spec.finetune
    return TrainPlan(
        epochs=tuned.epochs, batch_size=tuned.batch_size, learning_rate=tuned.learning_rate,
        optimizer=tuned.optimizer, seed=job.context.recipe.seed,
    )  # fmt: skip


def finished(job: Job, trained: Entry) -> FloatModel:
    """The trained model as a file in parity with the module, after a fresh process gave the same outputs."""
    inputs = job.context.inputs
    shapes = {name: [str(values.dtype), list(values.shape[1:])] for name, values in inputs.feeds.items()}
    key = {
        "model": inputs.model_digest, "trained": trained.digest, "inputs": shapes,
        "code": [code_digest("compress.export.parity"), code_digest("compress.prune.reload")],
        "versions": export_versions() | runtime_versions(),
    }  # fmt: skip
    entry = job.context.store.obtain("pruned", key, lambda folder: _finish(job, trained, folder))
    return FloatModel(
        path=entry.path / "model.onnx", entry=entry, parity=entry.facts["parity"], name=job.spec.label,
        reference=job.model.path,
    )  # fmt: skip


def held_score(job: Job, model: "nn.Module") -> float:
    """Mean score of a module on the samples of `train` that choose the best epoch."""
    metric, found = job.context.inputs.metric, []
    for feeds, labels in _splits(job)[1].batches(SCORE_BATCH):
        found.append(metric.score(run_torch(model, feeds), labels))
    return float(np.concatenate(found).mean())


def _finetune(job: Job, pruned: Entry, folder: Path) -> dict[str, Any]:
    from compress.prune.replay import STRUCTURE, read_structure, save
    from compress.train.loop import train
    from compress.train.progress import Watch

    context, model = job.context, model_of(job, pruned)
    _try_export(job, model, folder / "work" / "draft.onnx")
    watch = Watch(update=context.listener.update, stop=context.out_of_time, text="fine-tuning")
    cut_score = held_score(job, model)
    record = train(_task(job, model), plan_of(job), folder / "work", watch)
    write_json(folder / "train.json", record.as_dict())
    save(folder, read_structure(pruned.path / STRUCTURE), model)
    return {
        "record": record.as_dict(), "removed": pruned.facts["removed"], "cut_score": cut_score,
        "float_score": held_score(job, context.inputs.model),
    }  # fmt: skip


def _finish(job: Job, trained: Entry, folder: Path) -> dict[str, Any]:
    from compress.prune.replay import STRUCTURE, WEIGHTS

    context, inputs = job.context, job.context.inputs
    for name in (STRUCTURE, WEIGHTS):
        source = trained.path / name
        write_with(folder / name, lambda temporary, source=source: shutil.copyfile(source, temporary))  # type: ignore[misc]
    model, path = model_of(job, trained), folder / "model.onnx"
    context.listener.update(0, 1, "exporting the pruned model")
    exported = export_onnx(model, inputs.feeds, path, inputs.output_names)
    parity = check_parity(model, path, inputs.splits["select"], threads=context.recipe.target.threads)
    context.listener.update(0, 1, "loading it in a fresh process")
    return {"exporter": exported.exporter, "parity": parity, "reloaded": _reloaded(job, model, folder)}


def _reloaded(job: Job, model: "nn.Module", folder: Path) -> dict[str, Any]:
    """Largest difference of outputs between this process and a fresh one. Raises InputError when they differ."""
    from compress.prune.checks import outputs_of
    from compress.prune.reload import Factory, reloaded_outputs

    recipe, inputs = job.context.recipe, job.context.inputs
    factory = Factory(ref=recipe.model.ref, kwargs=recipe.model.kwargs, folders=inputs.folders, seed=recipe.seed)
    there = reloaded_outputs(factory, folder, inputs.feeds)
    here = {name: values.numpy() for name, values in outputs_of(model, inputs.feeds).items()}
    apart = max(float(np.abs(there[name] - values).max()) for name, values in here.items())
    size = max(float(np.abs(values).max()) for values in here.values())
    if not apart <= SAME * size:
        fact = f"a fresh process gives other outputs (largest difference {apart:.3g}, outputs up to {size:.3g})"
        raise InputError(job.place, fact, "Make the factory give the same module every time")
    return {"max_abs": apart, "n": len(next(iter(here.values())))}


def _try_export(job: Job, model: "nn.Module", draft: Path) -> None:
    """Fail before the training, not after it."""
    from compress.device.runtime import open_session, run_session

    inputs = job.context.inputs
    job.context.listener.update(0, 1, "exporting once before training")
    draft.parent.mkdir(parents=True, exist_ok=True)
    export_onnx(model, inputs.feeds, draft, inputs.output_names)
    run_session(open_session(draft), inputs.feeds, str(draft))


def _task(job: Job, model: "nn.Module") -> "Task":
    from compress.train.loop import Task
    from compress.train.losses import Distillation, frozen

    inputs, tuned = job.context.inputs, job.spec.finetune
    fit, held = _splits(job)
    loss = Distillation(
        teacher=frozen(inputs.model), classes=_classes(job), temperature=tuned.temperature,
        label_weight=tuned.label_weight,
    )  # fmt: skip
    return Task(
        model=model, loss=loss, fit=fit, held=held, score=inputs.metric.score, sign=inputs.metric.sign, place=job.place
    )


def _splits(job: Job) -> tuple[Split, Split]:
    from compress.train.order import hold_out

    return hold_out(job.context.inputs.splits["train"], seed=job.context.recipe.seed)


def _classes(job: Job) -> bool:
    return isinstance(job.context.recipe.metric, str)
