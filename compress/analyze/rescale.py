"""The same table with other sizes of tensors and other amounts of work, counted again from there. Pure Python."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compress.analyze.table import Op, OpTable, TensorInfo


def rescaled(table: OpTable, sizes: Mapping[int, float], work: Sequence[float] | None = None) -> OpTable:
    """Every tensor in a storage of `sizes` takes that share of its bytes; op number i does `work[i]` of its work.

    Shapes stay as they were: only bytes and counts change. Raises nothing.
    """
    factors = work or [1.0] * len(table.ops)
    # An op's inputs are most often what it reads, and the output of another: each tensor is made anew once.
    made: dict[int, TensorInfo] = {}
    ops = tuple(_op(op, sizes, factor, made) for op, factor in zip(table.ops, factors, strict=True))
    weights = {t.storage: t.storage_bytes for op in table.ops for t in op.inputs if t.role == "weight"}
    saved = sum(nbytes * (1 - sizes.get(storage, 1.0)) for storage, nbytes in weights.items())
    return replace(
        table,
        ops=ops,
        weight_bytes=max(0, round(table.weight_bytes - saved)),
        inputs=tuple(_tensor(t, sizes, made) for t in table.inputs),
        outputs=tuple(_tensor(t, sizes, made) for t in table.outputs),
    )


def _op(op: Op, sizes: Mapping[int, float], factor: float, made: dict[int, TensorInfo]) -> Op:
    touched = (*op.inputs, *op.outputs)
    if factor == 1.0 and not any(t.storage in sizes for t in touched):
        return op
    inputs, outputs, reads, writes = (
        tuple(_tensor(t, sizes, made) for t in column) for column in (op.inputs, op.outputs, op.reads, op.writes)
    )
    return replace(
        op,
        inputs=inputs,
        outputs=outputs,
        reads=reads,
        writes=writes,
        macs=round(op.macs * factor),
        elementwise_flops=round(op.elementwise_flops * factor),
        scratch_bytes=round(op.scratch_bytes * factor),
    )


def _tensor(tensor: TensorInfo, sizes: Mapping[int, float], made: dict[int, TensorInfo]) -> TensorInfo:
    share = sizes.get(tensor.storage, 1.0)
    if share == 1.0:
        return tensor
    if id(tensor) not in made:
        nbytes, storage = round(tensor.nbytes * share), round(tensor.storage_bytes * share)
        made[id(tensor)] = replace(tensor, nbytes=nbytes, storage_bytes=storage)
    return made[id(tensor)]
