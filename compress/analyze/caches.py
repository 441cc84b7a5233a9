"""Which storages are key/value caches: they grow by an append and feed an attention. Pure Python."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compress.analyze import kinds
from compress.analyze.table import HEAVY, Op, TensorInfo

# What comes out of these is a shape, not the tensor.
_SIZES = ("shape", "size", "_shape_as_tensor")


def cache_storages(ops: Sequence[Op], candidates: Iterable[int]) -> set[int]:
    """Storages of caches among `candidates` (inputs and buffers), with the copies they pass through."""
    sources = {storage: {storage} for storage in candidates}
    appended: set[int] = set()
    found: set[int] = set()
    for op in ops:
        if op.kind in ("move", "gather", "view"):
            _follow(op, sources, appended)
        elif op.kind in HEAVY:
            grown = [t.storage for t in _keys_and_values(op) if t.storage in appended and t.storage in sources]
            found.update(grown, *(sources[storage] for storage in grown))
    return found


def with_caches(op: Op, caches: set[int]) -> Op:
    """The op with the role `kv` on every tensor that lives in a cache."""
    columns = (op.inputs, op.outputs, op.reads, op.writes)
    inputs, outputs, reads, writes = (tuple(as_cache(t, caches) for t in column) for column in columns)
    return replace(op, inputs=inputs, outputs=outputs, reads=reads, writes=writes)


def as_cache(tensor: TensorInfo, caches: set[int]) -> TensorInfo:
    """The tensor, with the role `kv` if it lives in a cache."""
    return replace(tensor, role="kv") if tensor.storage in caches else tensor


def _follow(op: Op, sources: dict[int, set[int]], appended: set[int]) -> None:
    name = kinds.base_name(op.op).lower()
    if name in _SIZES:
        return
    # An append joins its inputs, unless it writes in place: then the old content was there and what comes is new.
    in_place = bool(op.writes) and bool(op.inputs) and op.writes[0].storage == op.inputs[0].storage
    given = op.inputs if name in kinds.APPEND and not in_place else op.inputs[:1]
    carried = set().union(*(sources.get(t.storage, set()) for t in given))
    if not carried:
        return
    grows = name in kinds.APPEND or any(t.storage in appended for t in given)
    for tensor in op.outputs:
        sources.setdefault(tensor.storage, set()).update(carried)
        if grows:
            appended.add(tensor.storage)


def _keys_and_values(op: Op) -> Sequence[TensorInfo]:
    if op.kind == "attention":
        return op.inputs[1:3]
    operands = [t for t in op.inputs if t.role != "weight" or op.op in ("aten::matmul", "aten::bmm", "aten::einsum")]
    return operands if op.kind == "contraction" and len(operands) >= 2 else ()
