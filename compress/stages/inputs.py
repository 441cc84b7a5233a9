"""The user's model, data and metric, brought in and checked before anything expensive starts."""

import hashlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress import metrics
from compress.code import source_digest
from compress.data import Array, Splits, make_splits
from compress.errors import CompressError, InputError
from compress.export.parity import EXPORT_BATCH, run_torch
from compress.files import digest_of
from compress.metrics import Metric
from compress.recipe.refs import load_ref, search_folders
from compress.recipe.spec import MetricSpec, Recipe

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run works on. output_names: of forward, in order; feeds: the batch that is exported with, by name;
    folders: where references are looked up.
    """

    model: "torch.nn.Module"
    model_digest: str
    splits: Splits
    metric: Metric
    metric_digest: str
    output_names: list[str]
    feeds: dict[str, Array]
    folders: tuple[Path, ...] = ()


def load_inputs(recipe: Recipe, recipe_path: Path) -> Inputs:
    """Load model and data and pass one batch through. Raises InputError with place, fact and remedy."""
    model, model_digest = load_model(recipe, recipe_path)
    splits = load_splits(recipe, recipe_path)
    feeds, _ = splits["select"].read(np.arange(min(EXPORT_BATCH, len(splits["select"]))))
    outputs = run_torch(model, feeds)
    _check_batch(outputs, len(next(iter(feeds.values()))))
    metric, metric_digest = load_metric(recipe, recipe_path, splits, next(iter(outputs.values())))
    return Inputs(
        model=model, model_digest=model_digest, splits=splits, metric=metric, metric_digest=metric_digest,
        output_names=list(outputs), feeds=feeds, folders=search_folders(recipe_path),
    )  # fmt: skip


def load_model(recipe: Recipe, recipe_path: Path) -> "tuple[torch.nn.Module, str]":
    """The module in eval mode with its weights, and a digest of weights and code."""
    import torch

    factory = load_ref(recipe.model.ref, search_folders(recipe_path))
    torch.manual_seed(recipe.seed)
    model = _call("model.ref", recipe.model.ref, factory, recipe.model.kwargs)
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            "model.ref",
            f"'{recipe.model.ref}' returned {type(model).__name__}, not a torch.nn.Module",
            "Return the module",
        )
    if recipe.model.weights is not None:
        _load_weights_(model, recipe_path.absolute().parent / recipe.model.weights)
    model.eval()
    return model, _model_digest(model, factory)


def load_splits(recipe: Recipe, recipe_path: Path) -> Splits:
    function = load_ref(recipe.data.ref, search_folders(recipe_path))
    raw = _call("data.ref", recipe.data.ref, function, recipe.data.kwargs)
    return make_splits(
        raw,
        place=f"data.ref {recipe.data.ref}",
        calibration_samples=recipe.data.calibration_samples,
        seed=recipe.seed,
        refuse_leaks=recipe.data.leaks == "refuse",
    )


def load_metric(recipe: Recipe, recipe_path: Path, splits: Splits, outputs: Array) -> tuple[Metric, str]:
    """The metric, with labels checked against the model's outputs (n, classes)."""
    if isinstance(recipe.metric, MetricSpec):
        function = load_ref(recipe.metric.ref, search_folders(recipe_path))
        name = recipe.metric_name
        metric = metrics.user_metric(name, function, recipe.metric.direction, recipe.metric.chance)
        return metric, digest_of({"ref": recipe.metric.ref, "source": _source_of(function)})
    if outputs.ndim != 2:
        raise InputError(
            "metric",
            f"top1 wants outputs (n, classes), the model gives {list(outputs.shape)}",
            "Give a metric of your own",
        )
    for name in ("select", "confirm"):
        split = splits[name]
        metrics.check_labels(np.concatenate([labels for _, labels in split.batches(1024)]), outputs.shape[1], name)
    labels = np.concatenate([labels for _, labels in splits["select"].batches(1024)])
    return metrics.top1(labels), digest_of({"metric": "top1"})


def _call(key: str, ref: str, function: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
    """Call the user's function; whatever it raises becomes one line with the user's file and line."""
    try:
        return function(**kwargs)
    except CompressError:
        raise
    except (Exception, SystemExit) as error:
        where = _users_line(error)
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise InputError(
            f"{key} {ref}",
            f"raised {type(error).__name__}: {first[:200]}{where}",
            "Call it by hand to see the whole traceback, or use -v",
        ) from error


def _users_line(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""


def _load_weights_(model: "torch.nn.Module", path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except FileNotFoundError as error:
        raise InputError(str(path), "no such file", "Check model.weights; it is relative to the recipe") from error
    except (SafetensorError, OSError) as error:
        raise InputError(
            str(path),
            f"is not a whole safetensors file ({str(error)[:150]})",
            "Save it again with safetensors.torch.save_file",
        ) from error
    own = model.state_dict()
    problems = _weight_problems(own, tensors)
    if problems:
        shown = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        raise InputError(str(path), f"does not fit the model: {shown}", "Give the weights of this very model")
    model.load_state_dict(tensors, strict=True)


def _weight_problems(own: dict[str, Any], given: dict[str, Any]) -> list[str]:
    missing = [f"missing '{name}'" for name in own if name not in given]
    extra = [f"unexpected '{name}'" for name in given if name not in own]
    shapes = [
        f"'{name}' is {list(given[name].shape)}, the model wants {list(own[name].shape)}"
        for name in own
        if name in given and own[name].shape != given[name].shape
    ]
    return shapes + missing + extra


def _check_batch(outputs: dict[str, Array], batch: int) -> None:
    for name, values in outputs.items():
        if not values.ndim or len(values) != batch:
            raise InputError(
                "model.ref",
                f"output '{name}' is {list(values.shape)} for a batch of {batch}",
                "Put the batch on the first axis of every output",
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise InputError(
                "model.ref", f"output '{name}' holds NaN or infinity on real samples", "Check weights and preprocessing"
            )


def _model_digest(model: "torch.nn.Module", factory: Callable[..., Any]) -> str:
    """Digest of every tensor and of the source of every class the model is made of."""
    body = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        body.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        body.update(tensor.detach().contiguous().cpu().reshape(-1).view(_bytes_dtype()).numpy().tobytes())
    sources = {type(module).__module__ for module in model.modules()} | {getattr(factory, "__module__", "")}
    files = sorted({_file_of(name) for name in sources if not name.startswith("torch.")} - {None}, key=str)
    return digest_of(
        {"tensors": body.hexdigest(), "repr": repr(model), "sources": [source_digest(file) for file in files if file]}
    )


def _bytes_dtype() -> Any:
    import torch

    return torch.uint8


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and file.endswith(".py") else None


def _source_of(function: Callable[..., Any]) -> str:
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        return repr(function)
    return source_digest(Path(file)) if file else repr(function)
