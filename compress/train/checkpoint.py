"""Checkpoints: tensors as safetensors, everything else as JSON, each written whole; nothing is ever unpickled."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from compress.files import sha256_of, write_json, write_with

STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """tensors by name; facts: plain data."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """The tensors first, under a name of their own; the JSON, which makes them count, last; older ones are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:09d}.safetensors"
    # Tied weights share memory, which the format does not take; copies are equal.
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in checkpoint.tensors.items()}
    write_with(path, lambda temporary: save_file(tensors, temporary))
    write_json(folder / STATE, {"file": path.name, "sha256": sha256_of(path), "facts": checkpoint.facts})
    for other in folder.glob("step-*.safetensors"):
        if other != path:
            other.unlink(missing_ok=True)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last whole checkpoint, or None when there is none or it is damaged: training then starts again."""
    try:
        state = json.loads((folder / STATE).read_text())
        path = folder / Path(str(state["file"])).name
        if sha256_of(path) != state["sha256"]:
            return None
        return Checkpoint(tensors=load_file(path), facts=dict(state["facts"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
