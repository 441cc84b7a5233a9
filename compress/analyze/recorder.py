"""Record every op a model dispatches, as rows of the op table. Torch front end."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from compress.analyze.build import build_op
from compress.analyze.cost import Formula
from compress.analyze.table import Call, Op, Role, TensorInfo

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}

_DROPOUTS = ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")


@dataclass(frozen=True)
class _Known:
    """A storage met before: its number, what it is for, its name and size."""

    number: int
    role: Role
    name: str
    nbytes: int


class Storages:
    """Numbers for memory. A weak reference is held, so that an address is not reused while we look."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._held: list[Any] = []

    def add(self, tensor: torch.Tensor, role: Role, name: str, alias: torch.Tensor | None = None) -> None:
        """Give the memory of `tensor` (and of `alias`, its stand-in) a role and a name; the first one stays."""
        known = self._lookup(tensor, role, name)
        if alias is not None:
            self._known.setdefault(self._key(alias), known)

    def describe(self, tensor: torch.Tensor, role: Role) -> TensorInfo:
        """What the table says about a tensor; `role` is for memory not met before."""
        known = self._lookup(tensor, role, "")
        shape, itemsize = tuple(tensor.shape), tensor.dtype.itemsize
        strided = tensor.layout is torch.strided
        elements = 1
        for size, stride in zip(shape, tensor.stride() if strided else shape, strict=True):
            elements *= size if stride else min(size, 1)
        return TensorInfo(
            name=known.name,
            shape=shape,
            dtype=_NAMES[tensor.dtype],
            itemsize=itemsize,
            role=known.role,
            storage=known.number,
            offset=int(tensor.storage_offset()) if strided else 0,
            nbytes=elements * itemsize,
            storage_bytes=max(known.nbytes, elements * itemsize),
        )

    def _lookup(self, tensor: torch.Tensor, role: Role, name: str) -> _Known:
        key = self._key(tensor)
        known = self._known.get(key)
        if known is None:
            strided = tensor.layout is torch.strided
            nbytes = tensor.untyped_storage().nbytes() if strided else 0
            known = self._known[key] = _Known(len(self._held), role, name, nbytes)
            self._held.append(StorageWeakRef(tensor.untyped_storage()) if strided else tensor)
        return known

    @staticmethod
    def _key(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


class Recorder(TorchDispatchMode):
    """One row per dispatched op. Composite ops stay whole under `torch.inference_mode`."""

    supports_higher_order_operators = True

    def __init__(self, storages: Storages, formulas: Mapping[str, Formula]) -> None:
        super().__init__()
        self.storages, self.formulas = storages, formulas
        self.rows: list[Op] = []
        self.unknown: Counter[str] = Counter()
        self.unknown_rows: set[int] = set()
        self.stack: list[str] = []
        self.packed: dict[str, TensorInfo] = {}

    def enter(self, name: str) -> None:
        """A module's forward begins."""
        self.stack.append(name)

    def leave(self) -> None:
        """A module's forward ends."""
        self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        seen: list[TensorInfo] = []
        # Inputs are described before the call: an in-place op may change shapes.
        described = self._described(args, seen, "weight"), self._described(kwargs, seen, "weight")
        out = args[0] if does_nothing(func, args, kwargs) else func(*args, **kwargs)
        made: list[TensorInfo] = []
        self._described(out, made, "act")
        if made:
            self._record(func, described, tuple(seen), tuple(made))
        return out

    def _record(self, func: Any, described: Any, seen: tuple[TensorInfo, ...], made: tuple[TensorInfo, ...]) -> None:
        schema = getattr(func, "_schema", None)
        op = schema.name if schema is not None else f"higher_order::{func}"
        call = Call(
            op=op,
            args=tuple(described[0]),
            kwargs=described[1],
            inputs=seen,
            outputs=made,
            mutates=schema is not None and schema.is_mutable,
            pointwise=torch.Tag.pointwise in getattr(func, "tags", ()),
        )
        module = self.stack[-1] if self.stack else ""
        row, known = build_op(id=len(self.rows), module=module, call=call, formulas=self.formulas)
        if not known:
            self.unknown[op] += 1
            self.unknown_rows.add(row.id)
        self.rows.append(row)

    def _described(self, value: Any, found: list[TensorInfo], role: Role) -> Any:
        """`value` with tensors replaced. Memory first met as an input is a constant of the model: a weight."""
        if isinstance(value, torch.Tensor):
            info = self.storages.describe(value, role)
            found.append(info)
            return info
        if isinstance(value, list | tuple):
            return [self._described(item, found, role) for item in value]
        if isinstance(value, dict):
            return {key: self._described(item, found, role) for key, item in value.items()}
        if isinstance(value, torch.ScriptObject):
            found.extend(self._packed(value))
        return value

    def _packed(self, value: torch.ScriptObject) -> Iterator[TensorInfo]:
        """The weight inside a packed parameter of a quantized layer."""
        if not hasattr(value, "unpack"):
            return
        weight = value.unpack()[0]
        if not isinstance(weight, torch.Tensor):
            return
        name = f"{self.stack[-1] if self.stack else ''}.packed_weight"
        if name not in self.packed:
            # Unpacking makes a copy; it is kept so that its address stays its own.
            self.storages._held.append(weight)
            self.storages.add(weight, "weight", name)
            self.packed[name] = self.storages.describe(weight, "weight")
        yield self.packed[name]


def does_nothing(func: Any, args: Any, kwargs: Any) -> bool:
    """Dropout outside training. Real tensors come back as they are, fake ones as a copy; here always as they are."""
    schema = getattr(func, "_schema", None)
    if schema is None or schema.name.removesuffix("_") not in _DROPOUTS:
        return False
    return not (args[2] if len(args) > 2 else kwargs.get("train", True))


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in nested mappings, sequences and dataclasses, with a readable name."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for place, item in enumerate(value):
            yield from tensors_in(item, f"{name}.{place}" if name else str(place))
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from tensors_in(getattr(value, item.name), f"{name}.{item.name}" if name else item.name)
