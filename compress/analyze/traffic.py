"""Bytes moved, at three levels, per op and tag. Pure Python.

U, unfused: each op reads every distinct extent of its inputs and writes its outputs.
G, greedy-fused: only what crosses the border of a fusion group moves.
C, compulsory: weights, inputs and caches once, outputs and cache updates once. The only true lower bound.

Each byte is charged to the first op that causes it, so the columns add up to the model's totals exactly.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from compress.analyze import fusion
from compress.analyze.table import LEVELS, TAGS, Op, OpTable, TensorInfo

Tally = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """per_op[level][i]: bytes by tag of op number i; total[level]: their sum. Tags: weight, kv, act, io, move."""

    per_op: dict[str, list[Tally]]
    total: dict[str, Tally]

    def bytes_of(self, level: str, index: int | None = None) -> int:
        """Bytes of one op, or of the whole model, at a level."""
        return sum((self.total[level] if index is None else self.per_op[level][index]).values())


def traffic(table: OpTable) -> Traffic:
    """Bytes of every op at the levels C, G and U."""
    outside = _outside(table)
    levels = (_compulsory(table, outside), _fused(table, outside), _unfused(table))
    per_op = dict(zip(LEVELS, levels, strict=True))
    total = {level: _sum(rows) for level, rows in per_op.items()}
    return Traffic(per_op=per_op, total=total)


class _Claims:
    """Distinct extents counted once; never more of a storage than it holds."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int, int]] = set()
        self._taken: Counter[int] = Counter()

    def take(self, tensor: TensorInfo) -> int:
        """Bytes of this tensor that nobody has claimed before."""
        key = (tensor.storage, tensor.offset, tensor.nbytes)
        if key in self._seen:
            return 0
        self._seen.add(key)
        nbytes = min(tensor.nbytes, tensor.storage_bytes - self._taken[tensor.storage])
        self._taken[tensor.storage] += nbytes
        return nbytes


def _unfused(table: OpTable) -> list[Tally]:
    rows = []
    for op in table.ops:
        reads, writes, row = _Claims(), _Claims(), Counter[str]()
        for tensor in op.reads:
            row[_tag(op, tensor)] += reads.take(tensor)
        for tensor in op.writes:
            row[_tag(op, tensor)] += writes.take(tensor)
        row["act"] += op.scratch_bytes
        rows.append(_tally(row))
    return rows


def _fused(table: OpTable, outside: set[int]) -> list[Tally]:
    of = fusion.groups(table.ops)
    leaving = _leaving(table, of, outside)
    reads: dict[int, _Claims] = {}
    writes: dict[int, _Claims] = {}
    writer: dict[int, int] = {}
    rows = []
    for index, (op, group) in enumerate(zip(table.ops, of, strict=True)):
        row = Counter[str]()
        for tensor in op.reads:
            if tensor.storage in outside or writer.get(tensor.storage) != group:
                row[_tag(op, tensor)] += reads.setdefault(group, _Claims()).take(tensor)
        for tensor in op.writes:
            writer[tensor.storage] = group
            if (index, tensor.storage) in leaving:
                row[_tag(op, tensor)] += writes.setdefault(group, _Claims()).take(tensor)
        rows.append(_tally(row))
    return rows


def _leaving(table: OpTable, of: list[int], outside: set[int]) -> set[tuple[int, int]]:
    """(op index, storage) of every write that somebody outside its group reads."""
    writers: dict[int, list[int]] = {}
    leaving: set[tuple[int, int]] = set()
    for index, op in enumerate(table.ops):
        for tensor in op.reads:
            leaving.update((w, tensor.storage) for w in writers.get(tensor.storage, ()) if of[w] != of[index])
        for tensor in op.writes:
            writers.setdefault(tensor.storage, []).append(index)
            if tensor.storage in outside:
                leaving.add((index, tensor.storage))
    for tensor in table.outputs:
        leaving.update((w, tensor.storage) for w in writers.get(tensor.storage, ()))
    return leaving


def _compulsory(table: OpTable, outside: set[int]) -> list[Tally]:
    reads, writes = _Claims(), _Claims()
    rows = [Counter[str]() for _ in table.ops]
    last: dict[int, int] = {}
    for index, op in enumerate(table.ops):
        for tensor in op.reads:
            if tensor.storage in outside:
                rows[index][tensor.role] += reads.take(tensor)
        for tensor in op.writes:
            last[tensor.storage] = index
            if tensor.storage in outside:
                rows[index][tensor.role] += writes.take(tensor)
    for tensor in table.outputs:
        if tensor.storage in last and tensor.storage not in outside:
            index = last[tensor.storage]
            # A cache returned one step longer need only have its new part written.
            kept = (t.nbytes for t in table.ops[index].reads if t.role == "kv" and t.storage in outside)
            old = max(kept, default=0)
            rows[index][tensor.role] += max(0, writes.take(tensor) - old)
    return [_tally(row) for row in rows]


def _outside(table: OpTable) -> set[int]:
    """Storages that exist before the first op: weights, inputs, caches, constants."""
    made: set[int] = set()
    outside = {tensor.storage for tensor in table.inputs}
    for op in table.ops:
        outside.update(t.storage for t in _first_seen(op) if t.storage not in made)
        made.update(t.storage for t in op.outputs if t.storage not in outside)
    return outside


def _first_seen(op: Op) -> Iterator[TensorInfo]:
    yield from op.inputs
    yield from op.reads


def _tag(op: Op, tensor: TensorInfo) -> str:
    return "move" if tensor.role == "act" and op.kind == "move" else tensor.role


def _tally(row: Counter[str]) -> Tally:
    return {tag: row[tag] for tag in TAGS}


def _sum(rows: list[Tally]) -> Tally:
    return {tag: sum(row[tag] for row in rows) for tag in TAGS}
