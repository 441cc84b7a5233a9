"""Borrow a user's model: look at it, run it, and give it back exactly as it was. Torch front end."""

import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

_CONTAINERS = (dict, OrderedDict, list, set)


@contextmanager
def borrowed(model: nn.Module) -> Iterator[None]:
    """Run in evaluation mode, without fused fast paths or compilation; put everything back afterwards.

    Attributes (hooks and training flags among them) are put back one level deep, so a cache that a module keeps for
    itself keeps no traced tensors; random states too.
    """
    with ExitStack() as stack:
        for restore in (_attributes(model), _random_states(), _fast_path()):
            stack.callback(restore)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for module in model.modules():
            module.__dict__["training"] = False
        yield


@contextmanager
def module_names(model: nn.Module, enter: Callable[[str], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call `enter(name)` and `leave()` around every module's forward; the hooks are gone afterwards."""
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # It takes no hooks; its ops carry the name of the module around it.
            before = module.register_forward_pre_hook(_entering(plain_name(name), enter))
            after = module.register_forward_hook(lambda *_: leave(), always_call=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        yield


def plain_name(name: str) -> str:
    """A module's or tensor's name without the wrapper that `torch.compile` puts in between."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def unwrapped(model: nn.Module) -> nn.Module:
    """The module behind `torch.compile`."""
    inner = getattr(model, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def _entering(name: str, enter: Callable[[str], None]) -> Callable[..., None]:
    return lambda *_: enter(name)


def _attributes(model: nn.Module) -> Callable[[], None]:
    saved = [(module.__dict__, dict(module.__dict__)) for module in model.modules()]
    containers = [(v, v.copy()) for _, kept in saved for v in kept.values() if type(v) in _CONTAINERS]

    def restore() -> None:
        for container, kept in containers:
            _refill(container, kept)
        for attributes, before in saved:
            _refill(attributes, before)

    return restore


def _refill(container: Any, kept: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list) else container.update)(kept)


def _random_states() -> Callable[[], None]:
    cpu, python, legacy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None

    def restore() -> None:
        torch.set_rng_state(cpu)
        random.setstate(python)
        np.random.set_state(legacy)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    return restore


def _fast_path() -> Callable[[], None]:
    """In evaluation mode a whole encoder layer is one opaque op otherwise."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    return lambda: torch.backends.mha.set_fastpath_enabled(enabled)
