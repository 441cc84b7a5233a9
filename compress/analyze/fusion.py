"""Greedy fusion groups: anchors start a group, element-wise ops join the latest of their producers. Pure Python."""

from collections.abc import Sequence

from compress.analyze.table import Op


def groups(ops: Sequence[Op]) -> list[int]:
    """The group number of every op (-1 for views). Groups only depend on groups with smaller numbers.

    Layout copies are never fused away: they are what the reader should find. Matrix product, softmax, matrix product
    is one group, as every fused attention kernel makes it, so the score matrix does not move.
    """
    writer: dict[int, int] = {}
    of: list[int] = []
    state = _State()
    for op in ops:
        if op.kind == "view":
            of.append(-1)
            continue
        producers = [writer[t.storage] for t in op.reads if t.storage in writer]
        group = state.place(op, max(producers, default=-1), [writer.get(t.storage, -1) for t in op.inputs[:1]])
        of.append(group)
        writer.update({t.storage: group for t in op.writes})
    return of


class _State:
    """What each group can still take in."""

    def __init__(self) -> None:
        self.stage: list[str] = []

    def place(self, op: Op, latest: int, first: list[int]) -> int:
        """The group `op` joins, or a new one. latest: newest producing group; first: that of its first input."""
        if op.kind == "elementwise" and latest >= 0 and self.stage[latest] != "move":
            return latest
        if op.softmax and latest >= 0 and self.stage[latest] == "scores":
            self.stage[latest] = "weighted"
            return latest
        if _mixes_activations(op) and first[0] >= 0 and self.stage[first[0]] == "weighted":
            self.stage[first[0]] = "attention"
            return first[0]
        self.stage.append(_stage(op))
        return len(self.stage) - 1


def _stage(op: Op) -> str:
    return "scores" if _mixes_activations(op) else op.kind


def _mixes_activations(op: Op) -> bool:
    """A product of two activations, as QK^T and PV are."""
    operands = [t for t in op.inputs if t.role != "weight"]
    return op.kind == "contraction" and len(operands) >= 2
