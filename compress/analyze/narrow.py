"""What the table would be with fewer hidden channels: structured pruning, or a student of less width. Pure Python.

An approximation of rebuilding the model. Tensors that must agree on their channels form a group (sums, joins, copies,
attention); a product with a weight separates the group it reads from the one it writes. Groups that hold an input or
an output of the model keep their channels; every other one keeps the same share, rounded to whole tiles.
"""

from dataclasses import dataclass, field

from compress.analyze.rates import is_conv
from compress.analyze.rescale import rescaled
from compress.analyze.table import Op, OpTable, TensorInfo

# Rows of indices and masks have no channels.
_NO_CHANNELS = ("int64", "int32", "bool")


def narrowed(table: OpTable, *, ratio: float, round_to: int, keep_ends: bool = True) -> OpTable:
    """The table without `ratio` of its hidden channels, in whole tiles of `round_to` and never more than before.

    keep_ends=False: channels that the model gives out, or adds to its input, shrink as well; for bounds on any gain.
    """
    groups = _Groups()
    for op in table.ops:
        _tie(op, groups)
    if keep_ends:
        groups.protected.update(t.storage for t in (*table.inputs, *table.outputs))
    shares = groups.shares(ratio, round_to)
    sizes: dict[int, float] = {
        t.storage: shares[groups.find(t.storage)]
        for op in table.ops
        for t in (*op.inputs, *op.outputs)
        if t.role != "weight" and groups.find(t.storage) in shares
    }
    work = []
    for op in table.ops:
        before, after = _ends(op, sizes)
        work.append(_work(op, before, after))
        for tensor in op.inputs:
            # What a view does with a weight says nothing; the op behind it does.
            if tensor.role == "weight" and op.kind != "view":
                sizes.setdefault(tensor.storage, _weight(op, tensor, before, after))
    return rescaled(table, sizes, work)


@dataclass
class _Groups:
    """Storages whose channels must agree. width: channels of a group where a product or a lookup writes it."""

    parent: dict[int, int] = field(default_factory=dict)
    width: dict[int, int] = field(default_factory=dict)
    protected: set[int] = field(default_factory=set)

    def find(self, storage: int) -> int:
        while self.parent.setdefault(storage, storage) != storage:
            storage = self.parent[storage]
        return storage

    def join(self, tensors: list[TensorInfo]) -> None:
        for other in tensors[1:]:
            self.parent[self.find(other.storage)] = self.find(tensors[0].storage)

    def shares(self, ratio: float, round_to: int) -> dict[int, float]:
        """Share of the channels each free group keeps."""
        kept = {self.find(storage) for storage in self.protected}
        widths: dict[int, int] = {}
        for storage, width in self.width.items():
            root = self.find(storage)
            widths[root] = min(width, widths.get(root, width))
        return {root: _kept(width, ratio, round_to) / width for root, width in widths.items() if root not in kept}


def _kept(width: int, ratio: float, round_to: int) -> int:
    tiles = max(1, round(width * (1 - ratio) / round_to))
    return min(width, tiles * round_to)


def _tie(op: Op, groups: _Groups) -> None:
    given = [t for t in op.inputs if t.role != "weight" and t.dtype not in _NO_CHANNELS]
    made = list(op.outputs)
    if _matrices(op) and op.kind in ("contraction", "recurrent"):
        groups.join([*given[:1], *made] if _grouped(op) else made)
        _widen(op, groups)
    elif op.kind == "gather" and op.inputs and op.inputs[0].role == "weight":
        groups.join(made)
        _widen(op, groups)
    elif op.kind == "attention":
        groups.join([*given[:3], *made])
    elif op.kind == "elementwise":
        groups.join([*made, *(t for t in given if _same_channels(t, made))])
    else:
        groups.join([*given, *made])


def _widen(op: Op, groups: _Groups) -> None:
    for tensor in op.outputs[:1]:
        if tensor.shape:
            groups.width[tensor.storage] = _channels(op, tensor)


def _same_channels(tensor: TensorInfo, made: list[TensorInfo]) -> bool:
    """Not so a mask that is spread over heads; so a gate with one number a channel."""
    if not made or tensor.numel == made[0].numel:
        return True
    same_rank = len(tensor.shape) == len(made[0].shape) > 1
    return same_rank and tensor.shape[1] == made[0].shape[1] > 1


def _matrices(op: Op) -> list[TensorInfo]:
    return [t for t in op.inputs if t.role == "weight" and len(t.shape) >= 2]


def _channels(op: Op, tensor: TensorInfo) -> int:
    return max(1, tensor.shape[1] if is_conv(op) and len(tensor.shape) > 2 else tensor.shape[-1])


def _grouped(op: Op) -> bool:
    """A convolution in groups: channels in and out hang together."""
    if not is_conv(op) or len(op.inputs[0].shape) < 3 or not op.outputs:
        return False
    given, made = op.inputs[0].shape[1], op.outputs[0].shape[1]
    whole = made if "transpose" in op.op.lower() else given
    return bool(_matrices(op)[0].shape[1] < whole)


def _depthwise(op: Op) -> bool:
    return _grouped(op) and _matrices(op)[0].shape[1] == 1


def _ends(op: Op, sizes: dict[int, float]) -> tuple[float, float]:
    """Share of the channels that an op reads and writes."""
    given = [t for t in op.inputs if t.role != "weight"]
    before = sizes.get(given[0].storage, 1.0) if given else 1.0
    return before, sizes.get(op.outputs[0].storage, 1.0) if op.outputs else before


def _work(op: Op, before: float, after: float) -> float:
    if op.kind == "recurrent":
        # One matrix reads the input, the other the state; taken to be alike in size.
        return after * (before + after) / 2
    if op.kind == "contraction" and _matrices(op):
        return after if _depthwise(op) else before * after
    return after


def _weight(op: Op, tensor: TensorInfo, before: float, after: float) -> float:
    if tensor.numel == 1:
        return 1.0
    if len(tensor.shape) < 2 or op.kind not in ("contraction", "recurrent") or _depthwise(op):
        return after
    reads_input = op.kind == "contraction" or tensor.shape[-1] == op.inputs[0].shape[-1]
    return (before if reads_input else after) * after
