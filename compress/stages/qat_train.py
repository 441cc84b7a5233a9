"""What the qat stage trains: the float model under the target's rounding, and the same model without it as a control.

Both are one entry of the store each. Its `work/` holds the checkpoints, so that an interrupted training goes on.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.code import code_digest
from compress.data import Array, Split
from compress.device.facts import versions
from compress.errors import InputError
from compress.export.parity import run_torch
from compress.files import sha256_of, write_json, write_with
from compress.metrics import check_labels
from compress.quantize.ort import op_types_for, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes
from compress.quantize.schemes import LINEAR_HEAVY, Scheme
from compress.recipe.spec import Qat
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, read_array, relative_progress, write_array
from compress.stages.ptq_files import linear_share
from compress.store import Entry, Key
from compress.train.plan import TrainPlan

if TYPE_CHECKING:
    import torch
    from onnxruntime.quantization.calibrate import TensorsData

    from compress.quantize.imitate import Imitation
    from compress.train.loop import Task

# Samples by which the module that was trained and the file that is served are compared.
COMPARED_SAMPLES = 256
PLACED_SAMPLES = 4
# From here on batch normalisation keeps its statistics and activations their ranges: what is then trained is served.
FROZEN_FROM = 2 / 3
WEIGHTS = "model.safetensors"
CONTROL = "the float control"


@dataclass(frozen=True)
class Job:
    """One run of the stage: the recipe's wishes, the float file and the scheme to imitate."""

    context: Context
    spec: Qat
    model: FloatModel
    scheme: Scheme

    @property
    def label(self) -> str:
        return self.model.label(self.spec.label)

    @property
    def place(self) -> str:
        return f"stages.{self.spec.label}"

    @property
    def classes(self) -> bool:
        """Whether the outputs are classes, which is what top1 says."""
        return isinstance(self.context.recipe.metric, str)

    @cached_property
    def op_types(self) -> tuple[str, ...]:
        return op_types_for(linear_heavy=linear_share(self.model.path) >= LINEAR_HEAVY)

    @cached_property
    def plan(self) -> TrainPlan:
        spec = self.spec
        return TrainPlan(
            epochs=spec.epochs, batch_size=spec.batch_size, learning_rate=spec.learning_rate,
            optimizer=spec.optimizer, freeze_norm_epoch=int(FROZEN_FROM * spec.epochs), seed=self.context.recipe.seed,
        )  # fmt: skip

    def calibrated(self, path: Path) -> "TensorsData":
        calibration = self.context.inputs.splits["calibration"]
        return calibrate(path, calibration, self.op_types, relative_progress(self.context.listener, "calibrating"))

    def left_in_float(self, path: Path, ranges: "TensorsData") -> list[str]:
        """Nodes that the recipe excludes, and those of attention masks."""
        return [*self.spec.exclude, *mask_nodes(path, ranges)]


def check(context: Context, spec: Qat) -> None:
    """Raise InputError when the data cannot train."""
    check_training(context, spec.label, f"stages.{spec.label}.label_weight", spec.label_weight)


def check_training(context: Context, stage: str, place: str, label_weight: float) -> None:
    """Raise InputError when the data cannot train: no split, too few samples, no classes, one class only.

    place: of the recipe's label_weight.
    """
    from compress.train.order import hold_out

    splits = context.inputs.splits
    if "train" not in splits.by_name:
        fact = f"the data gives no split 'train', which {stage} learns from"
        raise InputError("data.ref", fact, f"Return one, or remove the {stage} stage")
    hold_out(splits["train"], seed=context.recipe.seed)
    if not isinstance(context.recipe.metric, str):
        if label_weight:
            fact = f"label_weight wants classes, but the metric is {context.inputs.metric.name}"
            remedy = "Remove it: the float model's own answers are followed"
            raise InputError(place, fact, remedy)
        return
    outputs = next(iter(run_torch(context.inputs.model, context.inputs.feeds).values()))
    labels = np.concatenate([labels for _, labels in splits["train"].batches(1024)])
    check_labels(labels, outputs.shape[1], "train")


def train_rounded(job: Job) -> Entry:
    """The model trained under the rounding of `scheme`: its weights, the ranges that go with them, the record."""
    return job.context.store.obtain("train", train_key(job, job.scheme), lambda folder: _train_rounded(job, folder))


def train_control(job: Job) -> Entry:
    """The float model after the same training without rounding: what training alone would have given."""
    return job.context.store.obtain("train", train_key(job, None), lambda folder: _train_control(job, folder))


def train_key(job: Job, scheme: Scheme | None) -> Key:
    """What a training depends on. scheme: None for the control, which knows no rounding."""
    import torch

    inputs, spec = job.context.inputs, job.spec
    known = versions()
    names = ("torch", "accelerate", "numpy", *(("nvidia-modelopt", "onnxruntime-gpu", "onnxruntime") if scheme else ()))
    return {
        "model": inputs.model_digest,
        "train": inputs.splits.digests["train"],
        "calibration": inputs.splits.digests["calibration"] if scheme else None,
        "metric": inputs.metric_digest,
        "plan": asdict(job.plan),
        "loss": {"temperature": spec.temperature, "label_weight": spec.label_weight, "classes": job.classes},
        "scheme": asdict(scheme) if scheme else None,
        "exclude": sorted(spec.exclude) if scheme else None,
        "threads": torch.get_num_threads(),
        "code": code_digest("compress.train.loop"),
        "rounding": code_digest("compress.quantize.imitate") if scheme else None,
        "versions": {name: known[name] for name in names if name in known},
    }


def plain_model(job: Job, trained: Entry) -> "torch.nn.Module":
    """A copy of the user's module with the trained weights, and nothing of ours in it."""
    import copy

    from safetensors.torch import load_file

    model = copy.deepcopy(job.context.inputs.model)
    model.load_state_dict(load_file(trained.path / WEIGHTS), strict=True)
    return model.eval()


def learned(trained: Entry) -> tuple[dict[str, tuple[float, float]], dict[str, Array]]:
    """Ranges by tensor, and scales by initialiser where weights are narrow."""
    facts = json.loads((trained.path / "learned.json").read_text())
    ranges = {name: (low, high) for name, (low, high) in facts["ranges"].items()}
    return ranges, {name: np.array(scale, dtype=np.float32) for name, scale in facts["scales"].items()}


def imitated_outputs(trained: Entry) -> Array:
    """What the module under rounding gave for the first calibration samples: (n, ...) of its first output."""
    return read_array(trained.path, "imitated")


def compared_feeds(job: Job) -> dict[str, Array]:
    """The samples of `imitated_outputs`, by input name."""
    calibration = job.context.inputs.splits["calibration"]
    feeds, _ = calibration.read(np.arange(min(COMPARED_SAMPLES, len(calibration))))
    return feeds


def _train_rounded(job: Job, folder: Path) -> dict[str, Any]:
    imitation = _imitation(job, folder)
    calibration = job.context.inputs.splits["calibration"]

    def before_epoch(epoch: int) -> None:
        if epoch <= (job.plan.freeze_norm_epoch or 0):
            imitation.observe_(calibration)

    facts = _train(job, folder, imitation.model, "under rounding", before_epoch)
    scales = {name: scale.tolist() for name, scale in imitation.weight_scales().items()}
    write_json(folder / "learned.json", {"ranges": imitation.ranges(), "scales": scales})
    outputs = run_torch(imitation.model, compared_feeds(job))
    write_array(folder, "imitated", next(iter(outputs.values())))
    _write_weights(folder, imitation.plain_state())
    return facts | {"missing": list(imitation.missing), "weights": sha256_of(folder / WEIGHTS)}


def _train_control(job: Job, folder: Path) -> dict[str, Any]:
    import copy

    model = copy.deepcopy(job.context.inputs.model)
    facts = _train(job, folder, model, CONTROL, lambda _epoch: None)
    _write_weights(folder, model.state_dict())
    return facts | {"weights": sha256_of(folder / WEIGHTS)}


def _imitation(job: Job, folder: Path) -> "Imitation":
    """The module under rounding. Quantizing the untrained file first shows, before any training, that it can be."""
    from compress.quantize.imitate import imitate
    from compress.quantize.placement import find_placement
    from compress.quantize.points import read_points

    inputs, source = job.context.inputs, job.model.path
    job.context.listener.update(0, 1, "quantizing once before training")
    ranges = job.calibrated(source)
    draft = folder / "work" / "draft.onnx"
    quantize_static(source, draft, job.scheme, ranges, job.op_types, job.left_in_float(source, ranges))
    _check_it_runs(draft, inputs.feeds)
    feeds, _ = inputs.splits["calibration"].read(np.arange(min(PLACED_SAMPLES, len(inputs.splits["calibration"]))))
    placement = find_placement(inputs.model, source, read_points(draft), feeds)
    if not placement.weights:
        fact = "none of the weights that the file rounds belongs to a Conv or Linear of the model"
        raise InputError(job.place, fact, "Remove the stage: its training would see no rounding")
    return imitate(inputs.model, placement, job.scheme, ranges)


def _check_it_runs(path: Path, feeds: dict[str, Array]) -> None:
    from compress.device.runtime import open_session, run_session

    run_session(open_session(path), feeds, str(path))


def _train(
    job: Job, folder: Path, model: "torch.nn.Module", what: str, before_epoch: Callable[[int], None]
) -> dict[str, Any]:
    from compress.train.loop import train
    from compress.train.progress import Watch

    # The control says what training gives, so it may not end where it began; a start under rounding is worth keeping.
    task = replace(_task(job, model, before_epoch), keep_start=what != CONTROL)
    watch = Watch(update=job.context.listener.update, stop=job.context.out_of_time, text=f"training {what}")
    record = train(task, job.plan, folder / "work", watch)
    write_json(folder / "train.json", record.as_dict())
    if record.stopped:
        job.context.listener.note(f"training {what} ended early, epoch {record.best_epoch} is kept: {record.stopped}")
    return {"record": record.as_dict()}


def _task(job: Job, model: "torch.nn.Module", before_epoch: Callable[[int], None]) -> "Task":
    from compress.train.loop import Task
    from compress.train.losses import Distillation, frozen
    from compress.train.order import hold_out

    inputs, spec = job.context.inputs, job.spec
    fit, held = hold_out(_train_split(job), seed=job.plan.seed)
    loss = Distillation(
        teacher=frozen(inputs.model),
        classes=job.classes,
        temperature=spec.temperature,
        label_weight=spec.label_weight,
    )
    return Task(
        model=model, loss=loss, fit=fit, held=held, score=inputs.metric.score, sign=inputs.metric.sign,
        place=job.place, before_epoch=before_epoch,
    )  # fmt: skip


def _train_split(job: Job) -> Split:
    return job.context.inputs.splits["train"]


def _write_weights(folder: Path, state: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in state.items()}
    write_with(folder / WEIGHTS, lambda temporary: save_file(tensors, temporary))
