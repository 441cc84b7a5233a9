"""Time of each op of a torch model, row for row as `trace` lists them. Torch front end.

It lives here rather than beside the runtime's timing because it needs the same view of a model that `trace` has.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from compress.analyze.borrow import borrowed, module_names, unwrapped
from compress.analyze.recorder import does_nothing
from compress.data import Array
from compress.export.onnx import call_arguments

WARM_UP_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class TorchTimes:
    """rows: {module, op, time_ms} in the order of the op table, medians over `n` runs.

    calls_ms: of whole calls without any instrument, same threads and kernels; end_to_end_ms: their median;
    operators_ms: sum of rows.
    """

    rows: list[dict[str, Any]] = field(repr=False)
    calls_ms: list[float] = field(repr=False)
    end_to_end_ms: float
    operators_ms: float
    n: int

    @property
    def unattributed_ms(self) -> float:
        """Whole call minus its rows: Python between the ops. Below zero where the instrument costs more than that."""
        return self.end_to_end_ms - self.operators_ms


def torch_operator_times(model: nn.Module, feeds: dict[str, Array], threads: int = 1, repeats: int = 10) -> TorchTimes:
    """Time every op of one call on `feeds` (n, ...) by input name, in evaluation mode; the model is left untouched.

    One row per op that `trace` lists under the same module, so that `analysis_dict(measured=rows)` finds each its
    place. Runs in which the model took another path than usual are left out. Whatever its forward raises comes through.
    """
    model = unwrapped(model)
    call = _Call(model, feeds)
    with borrowed(model), torch.inference_mode(), _threads(threads):
        # In turns, so that a busy moment of the machine does not fall on one of the two alone.
        pairs = [(call.timed(), call.operators()) for _ in range(WARM_UP_RUNS + repeats)][WARM_UP_RUNS:]
    whole, runs = [ms for ms, _ in pairs], [rows for _, rows in pairs]
    path, _ = Counter(tuple(row[:2] for row in run) for run in runs).most_common(1)[0]
    kept = [[row[2] for row in run] for run in runs if tuple(row[:2] for row in run) == path]
    times_ms = np.median(np.array(kept).reshape(len(kept), len(path)), axis=0)
    return TorchTimes(
        rows=[{"module": m, "op": op, "time_ms": float(t)} for (m, op), t in zip(path, times_ms, strict=True)],
        calls_ms=whole,
        end_to_end_ms=float(np.median(whole)),
        operators_ms=float(times_ms.sum()),
        n=len(kept),
    )


Row = tuple[str, str, float]


class _Call:
    """One call of a model on fresh copies of its inputs; buffers it writes to are put back."""

    def __init__(self, model: nn.Module, feeds: dict[str, Array]) -> None:
        self.model = model
        device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        self.feeds = {name: torch.from_numpy(np.ascontiguousarray(values)).to(device) for name, values in feeds.items()}
        self.on_cuda = device.type == "cuda"
        self.buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]

    def timed(self) -> float:
        """Milliseconds of the call with nothing watching."""
        args, kwargs = self._arguments()
        start = self._now()
        self.model(*args, **kwargs)
        elapsed = self._now() - start
        self._put_back()
        return elapsed / 1e6

    def operators(self) -> list[Row]:
        """(module, op, milliseconds) in the order they ran."""
        args, kwargs = self._arguments()
        watch = _Watch(self._now)
        with module_names(self.model, watch.stack.append, watch.leave), watch:
            self.model(*args, **kwargs)
        self._put_back()
        return watch.rows

    def _arguments(self) -> Any:
        return pytree.tree_map_only(torch.Tensor, torch.clone, call_arguments(self.feeds))

    def _put_back(self) -> None:
        for buffer, before in self.buffers:
            if not torch.equal(buffer, before):
                buffer.copy_(before)

    def _now(self) -> int:
        if self.on_cuda:
            torch.cuda.synchronize()  # kernels are only queued when their op returns
        return time.perf_counter_ns()


class _Watch(TorchDispatchMode):
    """Times every op at the level `trace` lists; nothing else happens while the clock runs."""

    supports_higher_order_operators = True

    def __init__(self, now: Any) -> None:
        super().__init__()
        self.now = now
        self.rows: list[Row] = []
        self.stack: list[str] = []

    def leave(self) -> None:
        self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if does_nothing(func, args, kwargs):
            out, elapsed = args[0], 0
        else:
            start = self.now()
            out = func(*args, **kwargs)
            elapsed = self.now() - start
        if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(out)):
            schema = getattr(func, "_schema", None)
            op = schema.name if schema is not None else f"higher_order::{func}"
            self.rows.append((self.stack[-1] if self.stack else "", op, elapsed / 1e6))
        return out


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
