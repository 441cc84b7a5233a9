"""Which storages are key/value caches: they grow by an append and feed an attention. Pure Python."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compress.analyze import kinds
from compress.analyze.table import HEAVY, Op, TensorInfo


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
    carried = set().union(*(sources.get(t.storage, set()) for t in op.inputs))
    if not carried:
        return
    grows = kinds.base_name(op.op).lower() in kinds.APPEND or any(t.storage in appended for t in op.inputs)
    for tensor in op.outputs:
        sources.setdefault(tensor.storage, set()).update(carried)
        if grows:
            appended.add(tensor.storage)


def _keys_and_values(op: Op) -> Sequence[TensorInfo]:
    if op.kind == "attention":
        return op.inputs[1:3]
    operands = [t for t in op.inputs if t.role != "weight" or op.op in ("aten::matmul", "aten::bmm", "aten::einsum")]
    return operands if op.kind == "contraction" and len(operands) >= 2 else ()
