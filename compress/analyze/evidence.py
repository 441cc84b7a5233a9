"""The numbers behind a verdict, as sentences. Pure Python."""

from dataclasses import dataclass

from compress.analyze.bounds import Bound, Span, bandwidth_of
from compress.analyze.classes import Class, Measured, Shares
from compress.analyze.rates import roof
from compress.analyze.table import OpTable
from compress.device.ceilings import Ceilings

WORDS: dict[Class, str] = {
    "data-pipeline": "waiting for data",
    "overhead": "starting ops (overhead)",
    "movement": "moving data about: transposes, copies, casts, joins",
    "kernel-limited": "kernels far below what the machine can do",
    "compute": "arithmetic",
    "weight-bandwidth": "reading weights",
    "kv-bandwidth": "reading the key/value cache",
    "activation-bandwidth": "reading and writing activations",
    "unattributed": "something that is no op of the model",
}


@dataclass(frozen=True, kw_only=True)
class _Whole:
    value: float
    low: float
    high: float
    n: int


def of(
    table: OpTable, ceilings: Ceilings, shares: Shares, bound: Bound, measured: Measured | None, first: Class
) -> tuple[str, ...]:
    """Sentences in a fixed order: time against its bound, the class, what else is large, what is not known."""
    found = [_time(bound, measured), _class(first, shares, ceilings)]
    movement = shares.share.get("movement", 0.0)
    if movement >= 0.25 and first != "movement":
        found.append(f"Layout copies take {movement:.0%}, which no compression of the model removes.")
    if shares.unattributed_ms:
        part = shares.unattributed_ms / shares.total_ms
        found.append(f"{shares.unattributed_ms:.4g} ms ({part:.0%}) of the measured time belong to no op of the table.")
    if table.coverage < 1:
        names = ", ".join(name for name, _ in table.unknown_ops) or table.error
        found.append(f"The count covers {table.coverage:.0%} of the bytes; not known: {names}.")
    return tuple(found)


def like(whole: Span, value: float) -> Span:
    """An interval around `value` as wide, relative to it, as `whole` is."""
    scale = value / whole.value
    return _Whole(value=value, low=whole.low * scale, high=whole.high * scale, n=whole.n)


def _time(bound: Bound, measured: Measured | None) -> str:
    low, high = bound.interval_ms
    limits = f"between {low:.4g} ms (each byte once) and {high:.4g} ms (nothing fused)"
    if measured is None:
        return f"Not measured: the bound of one pass lies {limits}, by {bound.limit}."
    whole = measured.end_to_end_ms
    times = whole.value / bound.hard_ms if bound.hard_ms else float("inf")
    return (
        f"One pass of {measured.batch} in {measured.runtime} takes {whole.value:.4g} ms [{whole.low:.4g}, "
        f"{whole.high:.4g}] (n={whole.n}), {times:.3g} times its hard bound; the bound lies {limits}."
    )


def _class(first: Class, shares: Shares, ceilings: Ceilings) -> str:
    ops = [row for row in shares.rows if row.class_ == first]
    spent = shares.time_ms(first)
    if first == "data-pipeline":
        return f"Of a step of {shares.total_ms:.4g} ms, {shares.wait_ms:.4g} ms wait for the loader."
    if first == "overhead":
        floor = sum(row.bound.floor_ms for row in ops)
        host = f", {shares.host_ms:.4g} ms of it between the ops" if shares.host_ms else ""
        return f"Starting {len(ops)} ops costs at least {floor:.4g} ms of the {spent:.4g} ms they take{host}."
    if first == "kernel-limited":
        reached = sum(row.bound.at("U") for row in ops)
        times = spent / reached if reached else float("inf")
        return f"{len(ops)} ops take {spent:.4g} ms, {times:.3g} times what their work and every byte of it need."
    if first in ("movement", "unattributed"):
        own = f", {shares.inserted_ms:.4g} ms of it in copies that the runtime inserts" if shares.inserted_ms else ""
        return f"{len(ops)} ops take {spent:.4g} ms{own if first == 'movement' else ''} and multiply nothing."
    return _intensity(first, shares, ceilings)


def _intensity(first: Class, shares: Shares, ceilings: Ceilings) -> str:
    rows = [shares.costs.ops[row.index] for row in shares.rows if row.class_ == first]
    flops = sum(op.flops for op in rows)
    nbytes = sum(op.total_bytes(shares.level) for op in rows)
    tags = {"weight-bandwidth": ("weight",), "kv-bandwidth": ("kv",)}.get(first, ("act", "io", "move"))
    part = sum(op.bytes[shares.level][tag] for op in rows for tag in tags) / nbytes if nbytes else 0.0
    dtype = max(rows, key=lambda op: op.flops).dtype
    rate = roof(ceilings, dtype)
    limit = f"{rate / bandwidth_of(shares.costs, ceilings):.4g}" if rate else "unknown"
    what = "" if first == "compute" else f"; {part:.0%} of their bytes are {'/'.join(tags)}"
    reached = f"{flops / nbytes:.3g}" if nbytes else "unbounded"
    return f"{len(rows)} ops do {reached} FLOP a byte where the ridge ({dtype}) is {limit}{what}."
