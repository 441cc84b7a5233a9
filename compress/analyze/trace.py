"""Torch front end: run a model once on tensors without memory and list what it does.

Works at the level `torch.export` shows: under `torch.inference_mode` a dispatch mode sees linear, attention, LSTM and
einsum whole, so the count does not depend on the device or on which fused kernel it would pick.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils import _pytree as pytree

from compress.analyze.borrow import borrowed, module_names, plain_name, unwrapped
from compress.analyze.caches import as_cache, cache_storages, with_caches
from compress.analyze.collection import collection_paused
from compress.analyze.cost import Formula
from compress.analyze.recorder import Recorder, Storages, tensors_in
from compress.analyze.table import Op, OpTable, TensorInfo
from compress.analyze.traffic import traffic


def count(model: nn.Module, inputs: Any, *, formulas: Mapping[str, Formula] | None = None) -> OpTable:
    """Count a model on one sample input: a tensor or array, a tuple of positional ones, or a dict of named ones.

    Never raises for what happens inside the model: the table then is partial and says why in `error`.
    """
    if isinstance(inputs, Mapping):
        return trace(model, (), dict(inputs), formulas=formulas)
    args = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
    return trace(model, args, formulas=formulas)


def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    formulas: Mapping[str, Formula] | None = None,
    fake: bool = True,
) -> OpTable:
    """List every op of `model(*args, **kwargs)` in evaluation mode.

    fake: try tensors without memory first (models on the meta device work too), real ones where the model looks at
    values. formulas: multiply-accumulates of custom ops by name, e.g. {"mylib::myop": lambda call: ...}.
    The model is given back unchanged. Never raises for what happens inside it: see `OpTable.error`.
    """
    model = unwrapped(model)
    args, named = pytree.tree_map(_as_tensor, (tuple(args), dict(kwargs or {})))
    runs = [_Run(model, args, named, formulas or {}, stand_in) for stand_in in _attempts(model, fake)]
    best: OpTable | None = None
    for run in runs:
        table = run.table()
        if not table.error:
            return table
        best = table if best is None or len(table.ops) >= len(best.ops) else best
    assert best is not None
    return best


StandIn = Callable[[torch.Tensor], torch.Tensor]


def _attempts(model: nn.Module, fake: bool) -> list[StandIn | None]:
    """How to stand in for the model's tensors, in the order to try; None is running it for real."""
    # Values cannot be read from the meta device, so a model on it is tried as if it were on the CPU.
    on_meta = any(t.is_meta for t in (*model.parameters(), *model.buffers()))
    stand_ins: list[StandIn | None] = [_empty_on_cpu, _empty_like] if on_meta else [_empty_like]
    return stand_ins if on_meta else [*stand_ins, None] if fake else [None]


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _empty_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _once(stand_in: StandIn) -> StandIn:
    """One stand-in for a tensor given twice, e.g. as query, key and value."""
    made: dict[int, torch.Tensor] = {}

    def stand_in_once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = stand_in(tensor)
        return made[id(tensor)]

    return stand_in_once


def _as_tensor(value: Any) -> Any:
    is_array = hasattr(value, "__array_interface__") and not isinstance(value, torch.Tensor)
    return torch.from_numpy(value) if is_array else value


@dataclass(frozen=True)
class _Run:
    """One attempt at running the model."""

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    formulas: Mapping[str, Formula]
    stand_in: StandIn | None

    def table(self) -> OpTable:
        """The table of this attempt, partial if the model raised."""
        storages = Storages()
        recorder = Recorder(storages, self.formulas)
        inputs: list[TensorInfo] = []
        outputs: list[TensorInfo] = []
        error = ""
        try:
            with borrowed(self.model), torch.inference_mode():
                self._run(recorder, inputs, outputs)
        except Exception as problem:
            # Whatever the user's code raises: one line in the table instead of a traceback.
            error = f"{type(problem).__name__}: {(str(problem).strip().splitlines() or [''])[0]}"
        return _assemble(self.model, recorder, inputs, outputs, error)

    def _run(self, recorder: Recorder, inputs: list[TensorInfo], outputs: list[TensorInfo]) -> None:
        if self.stand_in is None:
            self._call(recorder, inputs, outputs, torch.clone)
            return
        with collection_paused(), FakeTensorMode(allow_non_fake_inputs=True):
            self._call(recorder, inputs, outputs, self.stand_in)

    def _call(self, recorder: Recorder, inputs: list[TensorInfo], outputs: list[TensorInfo], stand_in: StandIn) -> None:
        storages = recorder.storages
        state = self._state(storages, stand_in)
        args, kwargs = pytree.tree_map_only(torch.Tensor, _once(stand_in), (self.args, self.kwargs))
        for name, tensor in (*tensors_in(args, "input"), *tensors_in(kwargs)):
            storages.add(tensor, "io", name)
            inputs.append(storages.describe(tensor, "io"))
        with module_names(self.model, recorder.enter, recorder.leave), recorder:
            if stand_in is torch.clone and _is_scripted(self.model):
                result = self.model(*args, **kwargs)
            else:
                result = functional_call(self.model, state, args, kwargs, tie_weights=False)
        outputs.extend(storages.describe(tensor, "io") for _, tensor in tensors_in(result))

    def _state(self, storages: Storages, stand_in: StandIn) -> dict[str, torch.Tensor]:
        """A stand-in for every parameter and buffer; in real runs parameters are used, buffers copied."""
        made: dict[Any, torch.Tensor] = {}
        state = {}
        for name, tensor in _named_state(self.model):
            key = _identity(tensor)
            if key not in made:
                keep = stand_in is torch.clone and (isinstance(tensor, nn.Parameter) or _is_scripted(self.model))
                made[key] = tensor if keep else stand_in(tensor)
                storages.add(tensor, "weight", plain_name(name), made[key])
            state[name] = made[key]
        return state


def _is_scripted(model: nn.Module) -> bool:
    """Whether tensors cannot be swapped, because compiled TorchScript holds them."""
    return any(isinstance(module, torch.jit.ScriptModule) for module in model.modules())


def _named_state(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = model.named_parameters(remove_duplicate=False)
    return [*parameters, *model.named_buffers(remove_duplicate=False)]


def _identity(tensor: torch.Tensor) -> Any:
    """Equal for tied tensors, also where two parameters view the same memory."""
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _assemble(
    model: nn.Module, recorder: Recorder, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], error: str
) -> OpTable:
    rows = recorder.rows
    buffers = {plain_name(name) for name, _ in model.named_buffers(remove_duplicate=False)}
    held = {t.storage for op in rows for t in op.inputs if t.role == "weight" and t.name in buffers}
    caches = cache_storages(rows, held | {t.storage for t in inputs})
    given_out = {t.storage for t in outputs}
    rows = [_with_roles(op, caches, given_out) for op in rows]
    outputs = [_as_output(t, given_out) for t in outputs]
    params, weight_bytes = _sizes(model, recorder)
    table = OpTable(
        source="torch",
        ops=tuple(rows),
        params=params,
        weight_bytes=weight_bytes,
        inputs=tuple(as_cache(t, caches) for t in inputs),
        outputs=tuple(as_cache(t, caches) for t in outputs),
        unknown_ops=tuple(sorted(recorder.unknown.items())),
        error=error,
    )
    return replace(table, coverage=_coverage(table, recorder.unknown_rows))


def _with_roles(op: Op, caches: set[int], given_out: set[int]) -> Op:
    touched = {t.storage for t in op.inputs} | {t.storage for t in op.outputs}
    if touched & given_out:
        columns = (op.inputs, op.outputs, op.reads, op.writes)
        inputs, outputs, reads, writes = (tuple(_as_output(t, given_out) for t in column) for column in columns)
        op = replace(op, inputs=inputs, outputs=outputs, reads=reads, writes=writes)
    return with_caches(op, caches) if touched & caches else op


def _as_output(tensor: TensorInfo, given_out: set[int]) -> TensorInfo:
    return replace(tensor, role="io") if tensor.role == "act" and tensor.storage in given_out else tensor


def _sizes(model: nn.Module, recorder: Recorder) -> tuple[int, int]:
    """Elements of distinct parameters, bytes of distinct parameters and buffers; packed weights belong to both."""
    packed = recorder.packed.values()
    try:
        parameters = {_identity(p): p for p in model.parameters()}
        everything = {_identity(t): t for _, t in _named_state(model)}
        params = sum(p.numel() for p in parameters.values())
        nbytes = sum(t.numel() * t.dtype.itemsize for t in everything.values())
    except (RuntimeError, ValueError):  # Lazy parameters have no size before the first call.
        return 0, 0
    return params + sum(t.numel for t in packed), nbytes + sum(t.nbytes for t in packed)


def _coverage(table: OpTable, unknown: set[int]) -> float:
    moved = traffic(table)
    total = moved.bytes_of("U")
    known = sum(moved.bytes_of("U", op.id) for op in table.ops if op.id not in unknown)
    share = known / total if total else 1.0
    if not table.error:
        return share
    read = sum(moved.total["C"][tag] for tag in ("weight", "kv"))
    return share * min(1.0, read / table.weight_bytes) if table.weight_bytes else 0.0
