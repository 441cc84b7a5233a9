"""The channel map: which channels of which tensor are left. Replayed on the user's own factory; nothing is pickled.

`structure.json` beside `model.safetensors` is a whole pruned model. Reading them runs no code but the factory's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from compress.errors import InputError
from compress.files import write_json, write_with
from compress.prune.layers import resize_

SCHEMA = "compress.structure/1"
STRUCTURE, WEIGHTS = "structure.json", "model.safetensors"
Kept = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Structure:
    """tensors: by name and axis the indices that are left, in order, of tensors that lost some.

    settings: whole numbers that a module of the user's own holds, such as its heads, by module and attribute.
    """

    tensors: Mapping[str, Mapping[int, Kept]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        tensors = {
            name: {str(dim): list(kept) for dim, kept in sorted(axes.items())}
            for name, axes in sorted(self.tensors.items())
        }
        settings = {name: dict(sorted(values.items())) for name, values in sorted(self.settings.items())}
        return {"schema": SCHEMA, "tensors": tensors, "settings": settings}


def replay_(model: nn.Module, structure: Structure) -> None:
    """Cut the tensors of a freshly made model, and tell its layers their new sizes.

    Raises InputError when the structure speaks of another model.
    """
    changed: dict[str, nn.Module] = {}
    for name, axes in structure.tensors.items():
        owner, attribute = _owner(model, name)
        _cut_(owner, attribute, axes, name)
        changed[name.rpartition(".")[0]] = owner
    for layer in changed.values():
        resize_(layer)
    for path, values in structure.settings.items():
        for attribute, value in values.items():
            module = _module(model, path)
            if not isinstance(getattr(module, attribute, None), int):
                raise _other_model(f"'{path}' has no number '{attribute}'")
            setattr(module, attribute, value)


def cut(tensor: Tensor, axes: Mapping[int, Kept]) -> Tensor:
    """What is left of a tensor (any shape)."""
    for dim, kept in axes.items():
        tensor = tensor.index_select(dim, torch.tensor(kept, dtype=torch.long, device=tensor.device))
    return tensor


def expand(full: Tensor, narrow: Tensor, axes: Mapping[int, Kept]) -> Tensor:
    """The other way: `narrow` in its places in a tensor of `full`'s shape, zeros elsewhere."""
    if not axes:
        return narrow.to(full.dtype)
    grid = torch.meshgrid(
        *[torch.tensor(axes.get(dim, tuple(range(size)))) for dim, size in enumerate(full.shape)], indexing="ij"
    )
    wide = torch.zeros_like(full)
    wide[grid] = narrow.to(full.dtype)
    return wide


def save(folder: Path, structure: Structure, model: nn.Module) -> None:
    """Write the structure and the weights of the pruned model."""
    from safetensors.torch import save_file

    write_json(folder / STRUCTURE, structure.as_dict())
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in model.state_dict().items()}
    write_with(folder / WEIGHTS, lambda temporary: save_file(tensors, temporary))


def load_(model: nn.Module, folder: Path) -> None:
    """Make a model fresh from its factory into the pruned one that lies in `folder`, in eval mode.

    Raises InputError when files are missing, damaged or of another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    replay_(model, read_structure(folder / STRUCTURE))
    try:
        model.load_state_dict(load_file(folder / WEIGHTS), strict=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        fact = f"does not fit the replayed model ({str(error).splitlines()[0][:200]})"
        raise InputError(str(folder / WEIGHTS), fact, "Use the factory that the model was pruned from") from error
    model.eval()


def read_structure(path: Path) -> Structure:
    """Raises InputError when the file is no structure."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r}")
        tensors = {
            str(name): {int(dim): tuple(int(one) for one in kept) for dim, kept in axes.items()}
            for name, axes in data["tensors"].items()
        }
        settings = {
            str(name): {str(key): int(value) for key, value in values.items()}
            for name, values in data["settings"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        fact = f"is no channel map ({type(error).__name__}: {str(error)[:150]})"
        raise InputError(str(path), fact, f"Give a file with schema {SCHEMA}") from error
    return Structure(tensors=tensors, settings=settings)


def _cut_(owner: nn.Module, attribute: str, axes: Mapping[int, Kept], name: str) -> None:
    old = getattr(owner, attribute)
    for dim, kept in axes.items():
        if dim >= old.ndim or not kept or min(kept) < 0 or max(kept) >= old.shape[dim]:
            raise _other_model(f"'{name}' is {list(old.shape)}, and its axis {dim} cannot keep what is asked")
    new = cut(old.detach(), axes).clone()
    if isinstance(old, nn.Parameter):
        setattr(owner, attribute, nn.Parameter(new, requires_grad=old.requires_grad))
    else:
        owner.register_buffer(attribute, new, persistent=attribute not in owner._non_persistent_buffers_set)


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    owner = _module(model, path)
    if attribute not in owner._parameters and attribute not in owner._buffers:
        raise _other_model(f"no tensor '{name}'")
    return owner, attribute


def _module(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        raise _other_model(f"no module '{path}'") from error


def _other_model(fact: str) -> InputError:
    return InputError("structure", f"it is of another model: {fact}", "Use the factory that the model was pruned from")
