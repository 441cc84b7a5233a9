"""Parity: the exported file and the torch module give the same outputs, by name, also at batch sizes not exported."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data import Array, Split
from compress.device.runtime import open_session, run_session
from compress.errors import InputError
from compress.export.onnx import call_arguments, evaluating, name_outputs

if TYPE_CHECKING:
    import torch

EXPORT_BATCH = 4
PARITY_BATCHES = (1, 3)
# Float kernels of two runtimes differ by rounding that grows with depth; 1e-3 of the output's scale is far above what
# sums of 1e4 products give in float32 (about 1e-6 x sqrt(1e4)) and far below what a wrong operator gives.
FLOAT_TOLERANCE = 1e-3


def run_torch(model: "torch.nn.Module", feeds: dict[str, Array]) -> dict[str, Array]:
    """Outputs by name of `model` in eval mode on one batch. Raises InputError when forward refuses the data."""
    import torch

    args, kwargs = call_arguments(
        {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in feeds.items()}
    )
    try:
        with evaluating(model), torch.inference_mode():
            outputs = model(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        shapes = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in feeds.items())
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
        raise InputError(
            "model.ref",
            f"forward refuses a batch of the data ({shapes}): {line[:200]}",
            "Match the data to the model's inputs",
        ) from error
    return {name: tensor.detach().numpy() for name, tensor in name_outputs(outputs).items()}


def check_parity(model: "torch.nn.Module", path: Path, split: Split, *, threads: int) -> dict[str, Any]:
    """Compare module and file on samples of `split` at two batch sizes. Raises InputError when they differ."""
    session = open_session(path, threads=threads)
    worst, agree, total = 0.0, 0, 0
    for batch in PARITY_BATCHES:
        feeds, _ = split.read(np.arange(min(batch, len(split))))
        expected = run_torch(model, feeds)
        found = run_session(session, feeds, str(path))
        worst = max(worst, max(_difference(name, expected[name], found.get(name), path) for name in expected))
        first = next(iter(expected))
        agree += int((_winner(expected[first]) == _winner(found[first])).sum())
        total += len(expected[first])
    result = {
        "max_abs": worst, "agreement": agree / total, "batches": list(PARITY_BATCHES), "tolerance": FLOAT_TOLERANCE,
        "passed": worst <= FLOAT_TOLERANCE,
        "note": "torch against the exported float file; difference relative to the largest output",
    }  # fmt: skip
    if not result["passed"]:
        fact = f"the exported file differs from the torch module by {worst:.3g} of the largest output"
        raise InputError(str(path), fact, "Look for code in forward that depends on the batch size, or on randomness")
    return result


def _difference(name: str, expected: Array, found: Array | None, path: Path) -> float:
    if found is None or found.shape != expected.shape:
        shape = "nothing" if found is None else list(found.shape)
        raise InputError(
            str(path), f"output '{name}' is {shape}, torch gives {list(expected.shape)}", "The exporter baked a size in"
        )
    scale = max(float(np.abs(expected).max()), 1e-12)
    return float(np.abs(expected - found).max()) / scale


def _winner(values: Array) -> Array:
    return values.reshape(len(values), -1).argmax(axis=1)
