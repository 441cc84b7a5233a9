"""Work and bytes as closed forms in batch and sequence, from `torch.export`. Torch front end.

Exported without decompositions, a graph shows the operators that `trace` sees, with sizes as expressions; the formulas
of `cost` multiply sizes and so take expressions as they are. A size that the model fixes stays a number.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import sympy
import torch
from torch import nn
from torch.fx import Node
from torch.utils import _pytree as pytree

from compress.analyze import build
from compress.analyze.borrow import borrowed
from compress.analyze.recorder import does_nothing
from compress.analyze.table import Call, Role, TensorInfo

B, S = sympy.Symbol("b", integer=True, positive=True), sympy.Symbol("s", integer=True, positive=True)
# Export takes an axis of one for a fixed size, and equal sizes for one axis.
SAMPLE_BATCH = 3
# The exporter wants a range for the sequence, with more than one size in it.
LONGEST = 4


@dataclass(frozen=True, kw_only=True)
class ClosedForm:
    """Expressions in b (batch) and s (sequence). macs: contractions; unfused_bytes: level U; compulsory_bytes: level C.

    symbols: those that are free in the model: ("b",) or ("b", "s").
    """

    macs: sympy.Expr
    unfused_bytes: sympy.Expr
    compulsory_bytes: sympy.Expr
    symbols: tuple[str, ...]

    def at(self, batch: int, sequence: int | None = None) -> dict[str, int]:
        """Numbers at a batch and a sequence length."""
        sizes = {B: batch} | ({} if sequence is None else {S: sequence})
        columns = {
            "macs": self.macs,
            "unfused_bytes": self.unfused_bytes,
            "compulsory_bytes": self.compulsory_bytes,
        }
        return {name: int(found.subs(sizes)) for name, found in columns.items()}


class NotSymbolic(Exception):  # noqa: N818
    """The model has no closed form that could be found; the message says why, in one line."""


def closed_form(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, *, sequence: tuple[str, ...] = ()
) -> ClosedForm:
    """Export with a free batch and count in symbols.

    args, kwargs: one batch of tensors (n, ...); sequence: names of keyword inputs, or "0", "1", ... of positional ones,
    whose second axis is the sequence. Where the model fixes the sequence, only the batch is free.
    Raises NotSymbolic when the model cannot be exported with a free batch, or an operator has no formula.
    """
    problems = []
    for names in dict.fromkeys((sequence, ())):
        try:
            return _counted(_exported(model, args, dict(kwargs or {}), names), names)
        except NotSymbolic:
            raise
        except Exception as error:  # whatever the exporter or the user's forward raises
            line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
            problems.append(f"{type(error).__name__}: {line[:160]}")
    raise NotSymbolic(problems[-1])


def _exported(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], names: tuple[str, ...]) -> Any:
    # A model takes lengths up to what it has positions for, and certainly the one it was given.
    longest = max([LONGEST, *(tensor.shape[1] for name, tensor in _by_name(args, kwargs) if name in names)])
    batch, length = torch.export.Dim("b", min=1, max=2**16), torch.export.Dim("s", min=2, max=longest)

    def dims(name: str, tensor: torch.Tensor) -> dict[int, Any]:
        found = {0: batch} if tensor.ndim else {}
        return found | ({1: length} if name in names else {})

    args = tuple(_stretched(tensor) for tensor in args)
    kwargs = {name: _stretched(tensor) for name, tensor in kwargs.items()}
    by_place = tuple(dims(str(place), tensor) for place, tensor in enumerate(args))
    dynamic: Any = by_place or {name: dims(name, tensor) for name, tensor in kwargs.items()}
    with borrowed(model), torch.no_grad(), warnings.catch_warnings():
        # Exporters warn about their own insides; what matters comes as an exception.
        warnings.simplefilter("ignore")
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)


def _by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    return [*((str(place), tensor) for place, tensor in enumerate(args)), *kwargs.items()]


def _stretched(tensor: torch.Tensor) -> torch.Tensor:
    """The first sample repeated to the batch that is exported."""
    return tensor[:1].expand(SAMPLE_BATCH, *tensor.shape[1:]).clone() if tensor.ndim else tensor


def _counted(program: Any, names: tuple[str, ...]) -> ClosedForm:
    counter = _Counter(program)
    for node in program.graph.nodes:
        counter.visit(node)
    free = ("b", "s") if names else ("b",)
    return ClosedForm(
        macs=sympy.expand(counter.macs),
        unfused_bytes=sympy.expand(counter.unfused),
        compulsory_bytes=sympy.expand(counter.compulsory),
        symbols=free,
    )


@dataclass
class _Counter:
    """Walks the graph once. roles: what each memory is for; same: memory that stands for another, behind
    ops that do nothing; read, written: what comes from outside and goes there, with its bytes."""

    program: Any
    macs: Any = sympy.S.Zero
    unfused: Any = sympy.S.Zero
    roles: dict[int, Role] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    read: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    written: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        signature = self.program.graph_signature
        self.inputs = set(signature.user_inputs)
        self.dims = {str(symbol): B if place == 0 else S for place, symbol in self._input_axes()}

    @property
    def compulsory(self) -> Any:
        """Weights and inputs once, outputs once."""
        return sum(self.read.values()) + sum(self.written.values())

    def visit(self, node: Node) -> None:
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "output":
            for leaf in pytree.tree_leaves(node.args):
                self._output(leaf)
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            self._call(node, node.target)

    def _input_axes(self) -> Iterator[tuple[int, Any]]:
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name in self.inputs and isinstance(node.meta["val"], torch.Tensor):
                for axis, size in enumerate(node.meta["val"].shape[:2]):
                    if isinstance(size, torch.SymInt):
                        yield axis, size.node.expr

    def _placeholder(self, node: Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            role: Role = "io" if node.name in self.inputs else "weight"
            self.roles.setdefault(self._storage(value), role)

    def _output(self, leaf: Any) -> None:
        for tensor in self._values(leaf):
            info = self._described(tensor)
            if self.roles.get(info.storage) is None:
                self.written[info.storage] = info.nbytes

    def _call(self, node: Node, target: Any) -> None:
        if does_nothing(target, node.args, node.kwargs):
            for given, out in zip(self._values(node.args[0]), self._values(node), strict=True):
                self.same[_address(out)] = self._storage(given)
            return
        seen: list[TensorInfo] = []
        args = tuple(self._argument(one, seen) for one in node.args)
        kwargs = {name: self._argument(one, seen) for name, one in node.kwargs.items()}
        made = tuple(self._described(tensor) for tensor in self._values(node))
        if not made:
            return
        schema = target._schema
        call = Call(
            op=schema.name, args=args, kwargs=kwargs, inputs=tuple(seen), outputs=made, mutates=schema.is_mutable,
            pointwise=torch.Tag.pointwise in target.tags,
        )  # fmt: skip
        row, known = build.build_op(id=0, module="", call=call, formulas={})
        if not known:
            raise NotSymbolic(f"no formula takes {schema.name} with free sizes")
        self.macs += row.macs
        self._move(row.reads, row.writes, row.scratch_bytes)

    def _move(self, reads: tuple[TensorInfo, ...], writes: tuple[TensorInfo, ...], scratch: Any) -> None:
        distinct = {(one.storage, one.offset, one.nbytes): _held(one) for one in reads}
        self.unfused += scratch + sum(distinct.values())
        self.unfused += sum({(one.storage, one.offset): one.nbytes for one in writes}.values())
        self.read.update({key: nbytes for key, nbytes in distinct.items() if self.roles.get(key[0]) is not None})

    def _argument(self, value: Any, seen: list[TensorInfo]) -> Any:
        if isinstance(value, Node):
            tensors = list(self._values(value))
            infos = [self._described(tensor) for tensor in tensors]
            seen.extend(infos)
            if not tensors:
                found = value.meta.get("val")
                return self._size(found) if isinstance(found, torch.SymInt) else found
            return infos if isinstance(value.meta["val"], list | tuple) else infos[0]
        if isinstance(value, list | tuple):
            return [self._argument(one, seen) for one in value]
        return value

    def _values(self, value: Any) -> Iterator[torch.Tensor]:
        """Tensors that a node stands for."""
        if isinstance(value, Node):
            yield from (one for one in pytree.tree_leaves(value.meta.get("val")) if isinstance(one, torch.Tensor))

    def _storage(self, tensor: torch.Tensor) -> int:
        return self.same.get(_address(tensor), _address(tensor))

    def _described(self, tensor: torch.Tensor) -> TensorInfo:
        storage = self._storage(tensor)
        strides = [self._size(stride) for stride in tensor.stride()]
        shape = tuple(self._size(size) for size in tensor.shape)
        nbytes = prod(size for size, stride in zip(shape, strides, strict=True) if stride != 0) * tensor.dtype.itemsize
        return TensorInfo(
            name="", shape=shape, dtype=str(tensor.dtype).removeprefix("torch."), itemsize=tensor.dtype.itemsize,
            role=self.roles.get(storage, "act"), storage=storage, offset=self._size(tensor.storage_offset()),
            nbytes=nbytes, storage_bytes=nbytes,
        )  # fmt: skip

    def _size(self, size: Any) -> Any:
        """A number, or an expression in b and s."""
        if not isinstance(size, torch.SymInt):
            return size
        expression = size.node.expr
        names = {symbol: self.dims[str(symbol)] for symbol in expression.free_symbols if str(symbol) in self.dims}
        return expression.subs(names)


def _held(tensor: TensorInfo) -> Any:
    """Bytes read: rows looked up are at most the table."""
    if isinstance(tensor.nbytes, int) or not isinstance(tensor.storage_bytes, int):
        return tensor.nbytes
    return sympy.Min(tensor.nbytes, tensor.storage_bytes)


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
