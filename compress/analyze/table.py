"""The op table: one row per executed op. Pure Python; `summary` writes it as `compress.analysis/1`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

Kind = Literal["contraction", "attention", "recurrent", "elementwise", "reduction", "move", "gather", "view", "other"]
Role = Literal["weight", "kv", "io", "act"]
KINDS: tuple[str, ...] = get_args(Kind)
ROLES: tuple[str, ...] = get_args(Role)
TAGS = ("weight", "kv", "act", "io", "move")
LEVELS = ("C", "G", "U")
HEAVY = ("contraction", "attention", "recurrent")


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """One tensor as an op sees it.

    storage: number of the memory it lives in (views share it); offset: first element within that memory;
    nbytes: bytes touched, without stride-0 extents; storage_bytes: size of the whole memory.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: float
    role: Role
    storage: int
    offset: int
    nbytes: int
    storage_bytes: int

    @property
    def numel(self) -> int:
        """Number of elements of the shape, repeated (expanded) ones included."""
        return prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a formula sees: the op's arguments with every tensor replaced by its `TensorInfo`.

    mutates: it writes into an argument; pointwise: the framework says it works element by element.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    mutates: bool = False
    pointwise: bool = False

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """The argument at `position`, or given as `name`, or the default."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


@dataclass(frozen=True, kw_only=True)
class Op:
    """One executed op. macs: contraction work only; flops = 2 * macs; elementwise_flops: everything else.

    reads, writes: what really moves when the op runs alone (a gather reads the gathered rows only);
    scratch_bytes: intermediate traffic of a composite op when nothing is fused (the score matrix of attention).
    """

    id: int
    op: str
    module: str
    kind: Kind
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    reads: tuple[TensorInfo, ...]
    writes: tuple[TensorInfo, ...]
    macs: int = 0
    elementwise_flops: int = 0
    scratch_bytes: int = 0
    causal: bool = False
    softmax: bool = False

    @property
    def flops(self) -> int:
        """Two per multiply-accumulate."""
        return 2 * self.macs


@dataclass(frozen=True, kw_only=True)
class OpTable:
    """All ops of one forward pass. params: elements of distinct parameters; weight_bytes: parameters and buffers, once.

    unknown_ops: op names counted as zero work, with their number of calls; notes: what the reader must know
    (e.g. dimensions assumed); error: why the table is partial, empty when it is whole.
    coverage: share of unfused bytes moved by known ops, times the share of weight bytes reached when partial.
    """

    source: str
    ops: tuple[Op, ...]
    params: int
    weight_bytes: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    unknown_ops: tuple[tuple[str, int], ...] = ()
    coverage: float = 1.0
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of contraction, attention and recurrent ops."""
        return sum(op.macs for op in self.ops)

    @property
    def flops(self) -> int:
        """Two per multiply-accumulate."""
        return 2 * self.macs

    @property
    def elementwise_flops(self) -> int:
        """Work outside the contractions, one per element and step."""
        return sum(op.elementwise_flops for op in self.ops)
