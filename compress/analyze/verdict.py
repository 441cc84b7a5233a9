"""Where the time is: one class, its share, and the numbers that say so. Pure Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from compress.analyze import evidence
from compress.analyze.bounds import AboveRoof, Bound, above_roof, model_bound
from compress.analyze.classes import CLASSES, IDLE_BELOW, Class, Measured, Shares, classify
from compress.analyze.table import OpTable
from compress.device.ceilings import MEASURED, Ceilings
from compress.errors import InputError

Confidence = Literal["measured on this machine", "datasheet, not measured", "ceilings contaminated", "counted only"]

# Waiting this much of a step for data, nothing in the model helps.
LOADER_WAITS = 0.40
# Layout copies of this share are worth fixing first, unless something else takes half of the time.
MOVEMENT_FROM = 0.25
MIXED_BELOW = 0.50
# Overhead is believed only while the machine idles and time hardly grows with the batch.
FLAT_BELOW = 0.30
# Half of the work in convolutions: a time below the arithmetic bound may come from a fast algorithm.
MOSTLY_CONV = 0.5


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a model's time is spent on.

    share: of the time, in [0, 1]; runner_up: the next class, with its share in `shares`; mixed: no class has half;
    evidence: sentences with numbers; errors: times below their bounds, so that a number is wrong.
    bound: of the whole model; shares: every op with its class; measured: what the verdict rests on, if anything.
    """

    class_: Class
    share: float
    runner_up: Class | None
    mixed: bool
    confidence: Confidence
    evidence: tuple[str, ...]
    sentence: str
    errors: tuple[AboveRoof, ...]
    bound: Bound
    shares: Shares
    measured: Measured | None
    coverage: float


def verdict(
    table: OpTable,
    ceilings: Ceilings,
    *,
    measured: Measured | None = None,
    loader_wait_share: float | None = None,
    elasticity: float | None = None,
) -> Verdict:
    """The class that takes most of the time.

    measured: times of the model, else its bounds stand in for them; loader_wait_share: of a training step, in [0, 1);
    elasticity: (t(2b) - t(b)) / t(b), near 1 when time grows with the batch b and near 0 when it does not.
    Raises InputError when the table has no op that takes time, or the loader's share is not in [0, 1).
    """
    shares, bound, doubts = _believed(table, ceilings, measured, loader_wait_share or 0.0, elasticity)
    ranked = _leading(shares)
    if not ranked:
        raise InputError("model", "no op of it takes time, so there is nothing to judge", table.error or "Give a model")
    first = ranked[0]
    share = shares.share[first]
    errors = _errors(table, ceilings, shares, bound, measured)
    return Verdict(
        class_=first,
        share=share,
        runner_up=ranked[1] if len(ranked) > 1 else None,
        mixed=share < MIXED_BELOW,
        confidence=_confidence(ceilings, measured),
        evidence=(
            *evidence.of(table, ceilings, shares, bound, measured, first),
            *doubts,
            *_flatness(first, elasticity),
        ),
        sentence=_sentence(first, share, ranked, shares.share),
        errors=errors,
        bound=bound,
        shares=shares,
        measured=measured,
        coverage=table.coverage,
    )


def _believed(
    table: OpTable, ceilings: Ceilings, measured: Measured | None, wait: float, elasticity: float | None
) -> tuple[Shares, Bound, tuple[str, ...]]:
    """Shares, bound and doubts: where overhead leads against the evidence, the shares are without it."""
    flat = elasticity is not None and elasticity < FLAT_BELOW
    shares = classify(table, ceilings, measured=measured, loader_wait_share=wait, flat=flat)
    bound = model_bound(shares.costs, ceilings)
    doubts = _against_overhead(shares, bound, elasticity) if _leading(shares)[:1] == ["overhead"] else ()
    if doubts:
        shares = classify(table, ceilings, measured=measured, loader_wait_share=wait, overhead=False)
    return shares, bound, doubts


def _leading(shares: Shares) -> list[Class]:
    """Classes that take time, the verdict first. What no op explains is never the verdict while anything else is."""
    order = sorted(CLASSES, key=lambda name: (name == "unattributed", -shares.share.get(name, 0.0)))
    ranked = [name for name in order if shares.share.get(name, 0.0) > 0]
    first = _first(shares.share)
    return ranked if first is None else [first, *(name for name in ranked if name != first)]


def _first(share: Mapping[Class, float]) -> Class | None:
    """A class that is the verdict although another one may be larger."""
    if share.get("data-pipeline", 0.0) >= LOADER_WAITS:
        return "data-pipeline"
    if share.get("movement", 0.0) >= MOVEMENT_FROM and max(share.values()) < MIXED_BELOW:
        return "movement"
    return None


def _against_overhead(shares: Shares, bound: Bound, elasticity: float | None) -> tuple[str, ...]:
    """Why it is not overhead after all."""
    model_ms = shares.total_ms - shares.wait_ms
    busy = max(bound.compute_ms, bound.memory_ms["C"]) / model_ms
    found = []
    if busy >= IDLE_BELOW:
        found.append(f"Not overhead: the machine needs {busy:.0%} of the time for the work itself.")
    if elasticity is not None and elasticity >= FLAT_BELOW:
        found.append(f"Not overhead: twice the batch takes {1 + elasticity:.2f} times as long.")
    return tuple(found)


def _flatness(first: Class, elasticity: float | None) -> tuple[str, ...]:
    if elasticity is None or elasticity >= FLAT_BELOW:
        return ()
    reason = "fits it" if first in ("overhead", "weight-bandwidth") else "points to a cost that batching would share"
    return (f"Twice the batch takes {1 + elasticity:.2f} times as long, which {reason}.",)


def _errors(
    table: OpTable, ceilings: Ceilings, shares: Shares, bound: Bound, measured: Measured | None
) -> tuple[AboveRoof, ...]:
    if measured is None:
        return ()
    whole = measured.end_to_end_ms
    convs = sum(op.flops for op in shares.costs.ops if op.conv) >= MOSTLY_CONV * max(table.flops, 1)
    found = [above_roof(whole, bound, ceilings, "the whole model", conv=convs)]
    for row in () if measured.ops_estimated else shares.rows:
        if row.measured and row.time_ms > 0:
            # A profile gives one number an op; it is taken to be as steady as the whole.
            interval = evidence.like(whole, row.time_ms)
            op = table.ops[row.index]
            place = f"op {op.id} {op.module or op.op}"
            # Profiles time the kernel; the cost of starting it may be counted elsewhere.
            bound = replace(row.bound, hard_floor_ms=0.0)
            found.append(above_roof(interval, bound, ceilings, place, conv=shares.costs.ops[row.index].conv))
    return tuple(one for one in found if one is not None)


def _confidence(ceilings: Ceilings, measured: Measured | None) -> Confidence:
    if ceilings.contaminated:
        return "ceilings contaminated"
    if ceilings.source != MEASURED:
        return "datasheet, not measured"
    return "counted only" if measured is None else "measured on this machine"


def _sentence(first: Class, share: float, ranked: list[Class], shares: Mapping[Class, float]) -> str:
    start = f"Time is in {evidence.WORDS[first]} ({share:.0%})"
    told = len(ranked) > 1 and shares[ranked[1]] >= 0.01
    second = f", then in {evidence.WORDS[ranked[1]]} ({shares[ranked[1]]:.0%})" if told else ""
    return f"{'Mixed: ' if share < MIXED_BELOW else ''}{start}{second}."
