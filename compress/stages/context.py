"""What every stage gets: the recipe, the checked inputs, the store, and how to tell the user what is going on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from compress.candidate import Candidate, GateResult
from compress.data import Array
from compress.device.facts import fingerprint, versions
from compress.measure.isolated import Bench
from compress.measure.latency import Plan
from compress.recipe.spec import Recipe
from compress.stages.inputs import Inputs
from compress.store import Key, Store


@dataclass(frozen=True, kw_only=True)
class StepTaken:
    """A step inside a stage, for the ledger. made: its candidates; none, and `entered` False, when it was skipped.

    gain: of a step that makes no candidate, but what the stage's candidates come from; empty when it came to nothing.
    """

    name: str
    changed: str
    why: str
    entered: bool
    made: tuple[Candidate, ...] = ()
    gain: str = ""
    seconds: float = 0.0


class Listener(Protocol):
    """Where stages report to. `update`: progress inside the current step; `found`: a finished candidate."""

    def update(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def found(self, candidate: Candidate) -> None: ...

    def stepped(self, step: StepTaken) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Context:
    recipe: Recipe
    inputs: Inputs
    store: Store
    listener: Listener
    deadline: float
    # What the stages before this one have found.
    earlier: tuple[Candidate, ...] = ()
    # Candidates, by name, that passed on `select` and not on `confirm`, with the gates as found there.
    refuted: Mapping[str, list[GateResult]] = field(default_factory=dict)

    @property
    def bench(self) -> Bench:
        target = self.recipe.target
        return Bench(provider=target.provider, threads=target.threads, plan=Plan(seconds=2.0))

    def out_of_time(self) -> bool:
        """Whether the recipe's budget is used up."""
        return time.monotonic() >= self.deadline

    def feeds(self, batch: int) -> dict[str, Array]:
        """One batch of real samples for timing; samples repeat where the split holds fewer."""
        import numpy as np

        split = self.inputs.splits["select"]
        return split.read(np.arange(batch) % len(split))[0]


def export_versions() -> dict[str, str]:
    return _pick("torch", "onnx", "onnxscript")


def runtime_versions() -> dict[str, str]:
    return _pick("onnxruntime", "onnxruntime-gpu", "onnx", "numpy")


def machine_key(context: Context) -> Key:
    """What a measurement depends on beside the file: the machine, and how the recipe runs it."""
    target = context.recipe.target
    return {
        "machine": fingerprint(),
        "provider": target.provider,
        "threads": target.threads,
        "versions": runtime_versions(),
    }


def relative_progress(listener: Listener, text: str) -> Callable[[int, int], None]:
    return lambda done, total: listener.update(done, total, text)


def read_array(folder: Path, name: str) -> Array:
    import numpy as np

    found: Array = np.load(folder / f"{name}.npy", allow_pickle=False)
    return found


def write_array(folder: Path, name: str, values: Array) -> None:
    import numpy as np

    from compress.files import write_with

    write_with(folder / f"{name}.npy", lambda path: np.save(path, values, allow_pickle=False))


def _pick(*names: str) -> dict[str, Any]:
    known = versions()
    return {name: known[name] for name in names if name in known}
