"""A saved model proved in a process that knows nothing but its files and the user's factory.

    python -m compress.prune.reload < request.json

request: {ref, kwargs, folders, seed, threads, folder, inputs: a .npz, outputs: where a .npz of outputs is written}.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.errors import InputError
from compress.measure.isolated import child_environment
from compress.prune.checks import Feeds

TIMEOUT_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Factory:
    """The user's own function, as the recipe names it. folders: where its module is looked for."""

    ref: str
    kwargs: Mapping[str, Any]
    folders: Sequence[Path]
    seed: int


def reloaded_outputs(factory: Factory, folder: Path, feeds: Feeds) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs by name of the model in `folder`, made and run in a fresh process. Raises InputError when that fails."""
    import torch

    with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
        inputs, outputs = Path(scratch) / "inputs.npz", Path(scratch) / "outputs.npz"
        np.savez(inputs, allow_pickle=False, **feeds)
        request = {
            "ref": factory.ref, "kwargs": dict(factory.kwargs), "seed": factory.seed,
            "folders": [str(one) for one in factory.folders], "threads": torch.get_num_threads(),
            "folder": str(folder), "inputs": str(inputs), "outputs": str(outputs),
        }  # fmt: skip
        finished = subprocess.run(
            [sys.executable, "-m", "compress.prune.reload"], input=json.dumps(request), text=True, check=False,
            capture_output=True, timeout=TIMEOUT_SECONDS, env=child_environment(),
        )  # fmt: skip
        if finished.returncode or not outputs.exists():
            tail = (finished.stderr.strip().splitlines() or ["no message"])[-1][:300]
            raise InputError(str(folder), f"cannot be loaded in a fresh process ({tail})", "Check model.ref")
        with np.load(outputs, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def main() -> None:
    import torch

    from compress.prune.checks import outputs_of
    from compress.prune.replay import load_
    from compress.recipe.refs import load_ref

    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    factory = load_ref(request["ref"], [Path(folder) for folder in request["folders"]])
    torch.manual_seed(request["seed"])
    model = factory(**request["kwargs"])
    load_(model, Path(request["folder"]))
    with np.load(request["inputs"], allow_pickle=False) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    found = {name: values.numpy() for name, values in outputs_of(model, feeds).items()}
    np.savez(request["outputs"], allow_pickle=False, **found)


if __name__ == "__main__":
    main()
