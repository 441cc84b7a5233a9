"""What each method changes in the costs of a model: one function a method, in one literal table. Pure Python.

`hard` costs are the least the method could leave, so that a ceiling made from them is arithmetic; `expected` costs are
what a usual implementation leaves.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from compress.analyze import quantized
from compress.analyze.bounds import Span
from compress.analyze.classes import Class, Shares
from compress.analyze.costs import Cost, Costs, costs_of, floors_ns
from compress.analyze.narrow import narrowed
from compress.analyze.quantized import Bits
from compress.analyze.rates import roof
from compress.analyze.table import Op, OpTable
from compress.device.ceilings import Ceilings
from compress.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to predict.

    prune_ratios: shares of hidden channels to remove; round_to: channels a tile; batches: to grow to;
    batch: samples in the table, unless the verdict was measured and says it; target_speedup: what is wanted of one
    method; probes: measured speed-ups of methods by their name.
    Raises InputError for a ratio outside (0, 1) or a count below 1.
    """

    prune_ratios: tuple[float, ...] = (0.25, 0.5, 0.75)
    round_to: int = 8
    batches: tuple[int, ...] = (8,)
    batch: int = 1
    target_speedup: float | None = None
    probes: Mapping[str, Span] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for ratio in self.prune_ratios:
            if not 0 < ratio < 1:
                raise InputError("prune_ratios", f"{ratio} is not between 0 and 1", "Give the share to remove, as 0.5")
        if min(self.round_to, self.batch, *self.batches) < 1:
            raise InputError("predictions", "a batch or a tile below 1", "Give 1 or more")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model that methods are tried on."""

    table: OpTable
    ceilings: Ceilings
    shares: Shares
    batch: int

    def costs(self, table: OpTable) -> Costs:
        return costs_of(table, self.ceilings, self.shares.runtime)

    def costs_in(self, bits: Bits) -> Costs:
        costs = costs_of(bits.table, self.ceilings, self.shares.runtime, bits.dtypes)
        return quantized.with_conversions(costs, bits)

    @property
    def main_type(self) -> str:
        """The type most of the work is done in."""
        work = Counter[str]()
        for op in self.shares.costs.ops:
            work[op.dtype] += int(op.flops)
        return work.most_common(1)[0][0] if work else "fp32"


@dataclass(frozen=True, kw_only=True)
class Change:
    """After a method. level: of bytes the runtime then moves; samples: times as many in one pass; kept: classes whose
    expected time stays, removed: those whose time goes; host: share of the time between ops that stays; doubt: why
    an expectation may not come true here."""

    expected: Costs
    hard: Costs
    why: str
    level: str
    samples: float = 1.0
    kept: frozenset[Class] = frozenset()
    removed: frozenset[Class] = frozenset()
    host: float = 1.0
    doubt: str = ""


Method = Callable[[Subject], Change]


def methods(asked: Asked) -> tuple[tuple[str, Method], ...]:
    """Every method, cheap ones first, by the name that predictions and probes carry."""
    return (
        *((f"batch {size}", _batch(size)) for size in asked.batches),
        ("graph mode", _graph),
        ("copies folded", _folded),
        ("int8 W8A8", _integers),
        ("int8 dynamic", _dynamic_integers),
        ("int8 weight-only", _weights_int8),
        ("int4 weight-only g128", _weights_int4),
        ("KV int8", _cache_int8),
        *((f"prune {ratio:.0%}", _narrower(ratio, asked.round_to, "pruning")) for ratio in asked.prune_ratios),
        ("half-width student", _narrower(0.5, asked.round_to, "a student")),
        ("half-depth student", _half_depth),
    )


def _integers(subject: Subject) -> Change:
    bits, most = quantized.with_integers(subject.table), quantized.all_integers(subject.table)
    now, ceilings = subject.main_type, subject.ceilings
    rate, base = ceilings.peak("int8"), ceilings.peak(now) or roof(ceilings, now)
    if rate is None or base is None:
        # Without integer arithmetic the numbers are stored in 8 bits and multiplied as before.
        types = subject.shares.costs.ops
        bits = replace(bits, dtypes=tuple(op.dtype for op in types))
        most = replace(most, dtypes=bits.dtypes)
        why = f"No int8 arithmetic is known for {ceilings.name}: only bytes shrink"
    else:
        why = f"int8 multiplies {rate / base:.2g} times as fast as {now} here"
    doubt = "int8 is slower than float on this device" if rate and base and rate < base else ""
    why += f"; {bits.boundaries} conversions between float and integer" if bits.boundaries else ""
    return Change(
        expected=subject.costs_in(bits), hard=subject.costs_in(most), why=why, level=subject.shares.level, doubt=doubt
    )


def _dynamic_integers(subject: Subject) -> Change:
    """Activations stay in float and are quantized on the fly, before every matrix product."""
    bits, ceilings, now = quantized.with_dynamic_integers(subject.table), subject.ceilings, subject.main_type
    rate, base = ceilings.peak("int8"), ceilings.peak(now) or roof(ceilings, now)
    if rate is None or base is None:
        bits = replace(bits, dtypes=tuple(op.dtype for op in subject.shares.costs.ops))
    changed = sum(1 for new, op in zip(bits.dtypes, subject.shares.costs.ops, strict=True) if new != op.dtype)
    doubt = "int8 is slower than float on this device" if rate and base and rate < base else ""
    why = f"{changed} matrix products in int8, activations quantized before each; convolutions stay"
    # The most generous reading: the conversion costs nothing.
    hard = subject.costs_in(replace(bits, extra_bytes={}))
    return Change(expected=subject.costs_in(bits), hard=hard, why=why, level=subject.shares.level, doubt=doubt)


def _weights_int8(subject: Subject) -> Change:
    usual = quantized.with_weights(subject.table, 1.0)
    return _fewer_weight_bytes(subject, usual, quantized.with_weights(subject.table, 1.0, everything=True), 1.0)


def _weights_int4(subject: Subject) -> Change:
    nbytes = quantized.INT4_BYTES
    usual = quantized.with_weights(subject.table, nbytes, convs=False)
    return _fewer_weight_bytes(subject, usual, quantized.with_weights(subject.table, nbytes, everything=True), nbytes)


def _fewer_weight_bytes(subject: Subject, usual: Bits, most: Bits, nbytes: float) -> Change:
    before = subject.shares.costs.tag_bytes("C", "weight")
    if subject.shares.runtime == "onnxruntime" and subject.ceilings.peak("int8"):
        # MatMulNBits quantizes activations on the fly and multiplies integers, so float rates do not bound it.
        most = replace(most, dtypes=quantized.all_integers(subject.table).dtypes)
    expected, hard = subject.costs_in(usual), subject.costs_in(most)
    why = f"Weights shrink from {_mb(before)} to {_mb(expected.tag_bytes('C', 'weight'))}, work stays"
    tokens = crossover_rows(subject.ceilings, subject.main_type, nbytes)
    why += f"; no gain above about {tokens:.0f} rows (batch x tokens), where arithmetic takes over" if tokens else ""
    return Change(expected=expected, hard=hard, why=why, level=subject.shares.level)


def crossover_rows(ceilings: Ceilings, dtype: str, weight_bytes: float) -> float | None:
    """Rows of a product from which arithmetic in `dtype` is the limit, no longer weights of so many bytes each."""
    ridge = ceilings.ridge(dtype)
    # intensity = 2 * rows / weight_bytes
    return ridge * weight_bytes / 2 if ridge else None


def _cache_int8(subject: Subject) -> Change:
    costs = subject.costs_in(quantized.with_cache(subject.table, 1.0))
    before = subject.shares.costs.tag_bytes("C", "kv")
    share = before / max(1.0, subject.shares.costs.total_bytes("C"))
    why = (
        f"The cache is {_mb(before)}, {share:.0%} of the compulsory bytes" if before else "There is no cache to shrink"
    )
    return Change(expected=costs, hard=costs, why=why, level=subject.shares.level)


def _narrower(ratio: float, round_to: int, means: str) -> Method:
    def method(subject: Subject) -> Change:
        table = narrowed(subject.table, ratio=ratio, round_to=round_to)
        least = narrowed(subject.table, ratio=ratio, round_to=round_to, keep_ends=False)
        macs = table.macs / subject.table.macs if subject.table.macs else 1.0
        left = f"{macs:.0%} of the work and {_mb(table.weight_bytes)} left"
        why = f"By {means}, hidden channels in tiles of {round_to}: {left}"
        # Copies of fewer channels have shorter runs, not fewer of them: no gain is expected, though one is possible.
        kept = frozenset[Class](("movement",))
        return Change(
            expected=subject.costs(table), hard=subject.costs(least), why=why, level=subject.shares.level, kept=kept
        )

    return method


def _half_depth(subject: Subject) -> Change:
    """Of ops that repeat with the same shapes, as layers do, the first half stays."""
    total = Counter(_signature(op) for op in subject.table.ops)
    met = Counter[object]()
    rows = []
    for op, cost in zip(subject.table.ops, subject.shares.costs.ops, strict=True):
        key = _signature(op)
        met[key] += 1
        rows.append(cost if met[key] <= (total[key] + 1) // 2 else _scaled(cost, 0.0, 0.0, 0.0))
    before = subject.shares.costs
    weights = sum(row.bytes["C"]["weight"] for row in rows)
    costs = Costs(ops=tuple(rows), resident_bytes=before.resident_bytes - before.tag_bytes("C", "weight") + weights)
    kept = sum(1 for row in rows if any(row.bytes["U"].values()))
    busy = sum(1 for row in before.ops if any(row.bytes["U"].values()))
    why = f"Of ops that repeat with the same shapes one half stays: {kept} of {busy} ops that move bytes"
    return Change(expected=costs, hard=costs, why=why, level=subject.shares.level)


def _graph(subject: Subject) -> Change:
    costs = subject.shares.costs
    if subject.shares.runtime == "onnxruntime":
        return Change(expected=costs, hard=costs, why="ONNX Runtime runs a graph already", level="G")
    figures = [one.value for name, one in subject.ceilings.dispatch_ns.items() if name != "view"]
    nodes = floors_ns(subject.table, subject.ceilings, "onnxruntime")
    rows = [replace(op, floor_ns=ns, hard_floor_ns=0.0) for op, ns in zip(costs.ops, nodes, strict=True)]
    if rows:
        # At best the whole graph is started once; a runtime still starts a kernel for every group that it cannot fuse.
        rows[0] = replace(rows[0], hard_floor_ns=min(figures, default=0.0))
    after = Costs(ops=tuple(rows), resident_bytes=costs.resident_bytes)
    least = replace(after, ops=tuple(replace(op, floor_ns=op.hard_floor_ns) for op in rows))
    before_ms = sum(op.floor_ns for op in costs.ops) / 1e6
    after_ms = sum(nodes) / 1e6
    why = (
        f"Starts cost {before_ms:.3g} ms op by op and {after_ms:.3g} ms in a graph; element-wise ops fuse: "
        f"{_mb(costs.total_bytes('G'))} move, not {_mb(costs.total_bytes('U'))}"
    )
    return Change(expected=after, hard=least, why=why, level="G", host=0.0)


def _folded(subject: Subject) -> Change:
    """Copies, transposes, casts and joins become part of their neighbours, or never happen."""
    shares = subject.shares
    moves = [row.index for row in shares.rows if row.class_ == "movement"]
    if len(moves) == sum(row.time_ms > 0 for row in shares.rows):
        why = "There is nothing but copies to fold them into"
        return Change(expected=shares.costs, hard=shares.costs, why=why, level=shares.level)
    rows = list(shares.costs.ops)
    for index in moves:
        rows[index] = _scaled(rows[index], 0.0, 0.0, 0.0)
    inserted = f" and those that the runtime inserts ({shares.inserted_ms:.3g} ms)" if shares.inserted_ms else ""
    why = f"Without {len(moves)} ops that only move data{inserted}, {shares.share.get('movement', 0.0):.0%} of the time"
    return Change(
        expected=shares.costs, hard=replace(shares.costs, ops=tuple(rows)), why=why, level=shares.level,
        removed=frozenset[Class](("movement",)),
    )  # fmt: skip


def _batch(size: int) -> Method:
    def method(subject: Subject) -> Change:
        times = size / subject.batch
        costs = subject.shares.costs
        rows = tuple(_scaled(op, times, times, 1.0, weights=1.0) for op in costs.ops)
        weights = costs.tag_bytes("C", "weight")
        after = Costs(ops=rows, resident_bytes=weights + (costs.resident_bytes - weights) * times)
        why = f"Time a sample in batches of {size}; one pass then takes longer than one of {subject.batch}"
        return Change(expected=after, hard=after, why=why, level=subject.shares.level, samples=times)

    return method


def _scaled(cost: Cost, flops: float, nbytes: float, floor: float, weights: float | None = None) -> Cost:
    shares = {"weight": nbytes if weights is None else weights}
    moved = {
        level: {tag: round(count * shares.get(tag, nbytes)) for tag, count in tally.items()}
        for level, tally in cost.bytes.items()
    }
    return replace(
        cost,
        flops=cost.flops * flops,
        bytes=moved,
        floor_ns=cost.floor_ns * floor,
        hard_floor_ns=cost.hard_floor_ns * floor,
    )


def _signature(op: Op) -> object:
    return op.op, tuple((t.shape, t.role == "weight") for t in op.inputs), tuple(t.shape for t in op.outputs)


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:.4g} MB"
