"""What the table would be with fewer bits: which ops, which tensors, and what crosses between float and integer."""

from dataclasses import dataclass, replace

from compress.analyze import fusion
from compress.analyze.costs import Cost, Costs
from compress.analyze.rates import FLOATS, is_conv, working_types
from compress.analyze.rescale import rescaled
from compress.analyze.table import HEAVY, Op, OpTable

# 4 bits, and a 16-bit scale and a 4-bit zero point for each group of 128.
INT4_BYTES = (4 + (16 + 4) / 128) / 8


@dataclass(frozen=True, kw_only=True)
class Bits:
    """A table with fewer bits. dtypes: the type each op works in; extra_bytes: of conversions, by op number."""

    table: OpTable
    dtypes: tuple[str, ...]
    extra_bytes: dict[int, float]
    boundaries: int = 0


def with_weights(table: OpTable, nbytes: float, *, everything: bool = False, convs: bool = True) -> Bits:
    """Weights of products in `nbytes` bytes an element, work as before. everything: embeddings and the rest as well."""
    sizes = {
        t.storage: min(1.0, nbytes / t.itemsize)
        for op in table.ops
        for t in op.inputs
        if t.role == "weight"
        and (everything or (_takes_weights(op) and len(t.shape) >= 2 and (convs or not is_conv(op))))
    }
    return Bits(table=rescaled(table, sizes), dtypes=working_types(table.ops), extra_bytes={})


def with_cache(table: OpTable, nbytes: float) -> Bits:
    """Key/value caches in `nbytes` bytes an element."""
    tensors = [*table.inputs, *(t for op in table.ops for t in (*op.inputs, *op.outputs))]
    sizes = {t.storage: min(1.0, nbytes / t.itemsize) for t in tensors if t.role == "kv"}
    return Bits(table=rescaled(table, sizes), dtypes=working_types(table.ops), extra_bytes={})


def with_integers(table: OpTable) -> Bits:
    """Products with weights in 8 bits; activations as well where all ops that write and read them are.

    Everywhere else a conversion reads the float and writes the integer, or the other way round.
    """
    before = working_types(table.ops)
    chosen = [_takes_weights(op) and before[index] in FLOATS for index, op in enumerate(table.ops)]
    flow = _Flow(table, chosen)
    weights = {
        t.storage: min(1.0, 1 / t.itemsize)
        for index, op in enumerate(table.ops)
        for t in op.inputs
        if chosen[index] and t.role == "weight" and len(t.shape) >= 2
    }
    inner = {storage: min(1.0, 1 / size) for storage, size in flow.inner().items()}
    extra, boundaries = flow.conversions(set(inner))
    return Bits(
        table=rescaled(table, weights | inner),
        dtypes=tuple("int8" if one else dtype for one, dtype in zip(chosen, before, strict=True)),
        extra_bytes=extra,
        boundaries=boundaries,
    )


def with_dynamic_integers(table: OpTable) -> Bits:
    """Matrix products with weights in 8 bits; what they read in float is written and read once more as integers."""
    before = working_types(table.ops)
    bits = with_weights(table, 1.0, convs=False)
    chosen = [
        _takes_weights(op) and not is_conv(op) and dtype in FLOATS for op, dtype in zip(table.ops, before, strict=True)
    ]
    extra = {
        index: sum(2 * t.nbytes / t.itemsize for t in op.reads if t.role != "weight")
        for index, op in enumerate(table.ops)
        if chosen[index]
    }
    types = ("int8" if one else dtype for one, dtype in zip(chosen, before, strict=True))
    return replace(bits, dtypes=tuple(types), extra_bytes=extra, boundaries=len(extra))


def all_integers(table: OpTable) -> Bits:
    """The most 8 bits could ever do: every weight, and every product in integers. For hard bounds."""
    before = working_types(table.ops)
    bits = with_weights(table, 1.0, everything=True)
    types = ("int8" if op.kind in HEAVY else dtype for op, dtype in zip(table.ops, before, strict=True))
    return replace(bits, dtypes=tuple(types))


def with_conversions(costs: Costs, bits: Bits) -> Costs:
    """The costs with the bytes of the conversions, which no fusion but a full integer path avoids."""
    if not bits.extra_bytes:
        return costs
    rows = tuple(_add(op, bits.extra_bytes.get(index, 0.0)) for index, op in enumerate(costs.ops))
    return replace(costs, ops=rows)


def _add(op: Cost, extra: float) -> Cost:
    if not extra:
        return op
    changed = {level: tally | {"act": tally["act"] + round(extra)} for level, tally in op.bytes.items() if level != "C"}
    return replace(op, bytes={**op.bytes, **changed})


def _takes_weights(op: Op) -> bool:
    return op.kind in ("contraction", "recurrent") and any(t.role == "weight" and len(t.shape) >= 2 for t in op.inputs)


class _Flow:
    """Who writes and reads each activation, by fusion group."""

    def __init__(self, table: OpTable, chosen: list[bool]) -> None:
        self.table = table
        self.of = fusion.groups(table.ops)
        self.integer = {group for group, one in zip(self.of, chosen, strict=True) if one and group >= 0}
        self.written: dict[int, set[int]] = {}
        self.read: dict[int, set[int]] = {}
        self.size: dict[int, float] = {}
        outside = {t.storage for t in (*table.inputs, *table.outputs)}
        for op, group in zip(table.ops, self.of, strict=True):
            for tensor, users in (*((t, self.read) for t in op.reads), *((t, self.written) for t in op.writes)):
                if tensor.role != "weight":
                    users.setdefault(tensor.storage, set()).add(group if tensor.storage not in outside else -1)
                    self.size[tensor.storage] = tensor.itemsize

    def inner(self) -> dict[int, float]:
        """Bytes an element of activations that never leave the integers."""
        users = {storage: self.written.get(storage, {-1}) | self.read.get(storage, {-1}) for storage in self.size}
        return {storage: self.size[storage] for storage, groups in users.items() if groups <= self.integer}

    def conversions(self, inner: set[int]) -> tuple[dict[int, float], int]:
        """Bytes by op, and how many. Each writes the integers and the op reads them again, or the other way round."""
        extra: dict[int, float] = {}
        seen: set[tuple[int, bool]] = set()
        for index, (op, group) in enumerate(zip(self.table.ops, self.of, strict=True)):
            if group not in self.integer:
                continue
            for tensor, made in (*((t, False) for t in op.reads), *((t, True) for t in op.writes)):
                local = self.written.get(tensor.storage) == {group} and (
                    not made or self.read.get(tensor.storage) == {group}
                )
                known = tensor.storage in inner or (tensor.storage, made) in seen
                if tensor.role == "weight" or local or known or tensor.itemsize <= 1:
                    continue
                seen.add((tensor.storage, made))
                extra[index] = extra.get(index, 0.0) + 2 * tensor.nbytes / tensor.itemsize
        return extra, len(seen)
