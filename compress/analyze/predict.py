"""Three numbers for each method before it is tried: hard ceiling, expected gain, and a probe where one was made.

hard     = T_now / LB_after, from roofs and compulsory bytes only: arithmetic, so it may stop a run
expected = T_now / sum over classes of t_class * min(1, bound_after / bound_before), at least the cost of starting ops
probe    = what the caller measured
Pure Python.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from compress.analyze.bounds import Bound, Span, model_bound, op_bounds
from compress.analyze.classes import Class, Shares
from compress.analyze.costs import Costs
from compress.analyze.methods import Asked, Change, Subject, methods
from compress.analyze.table import OpTable
from compress.analyze.verdict import Verdict
from compress.device.ceilings import Ceilings

Helps = Literal["go", "warn", "stop"]
# Less than this is lost in the noise of most machines.
WORTH_IT = 1.05


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Speed-ups of one method, old time over new. hard: None where nothing bounds it; probe: None unless measured.

    helps: go, warn, or stop when even the hard ceiling is below the target; why: sentences with numbers.
    """

    name: str
    hard: float | None
    expected: float
    probe: Span | None
    helps: Helps
    why: str


def predict(
    table: OpTable, ceilings: Ceilings, found: Verdict, *, asked: Asked | None = None
) -> tuple[Prediction, ...]:
    """Every method on this model, in the order of `methods`. found: the verdict on the same table and ceilings."""
    asked = asked or Asked()
    batch = found.measured.batch if found.measured else asked.batch
    subject = Subject(table=table, ceilings=ceilings, shares=found.shares, batch=batch)
    now = _by_class(found.shares, found.shares.costs, found.shares.level, ceilings)
    return tuple(_prediction(name, method(subject), subject, now, found, asked) for name, method in methods(asked))


def _prediction(
    name: str, change: Change, subject: Subject, before: "dict[Class, _Sums]", found: Verdict, asked: Asked
) -> Prediction:
    now = found.shares.total_ms
    least = model_bound(change.hard, subject.ceilings).hard_ms / change.samples
    # A step cannot be shorter than its wait for data, whatever the model does.
    least = max(least, found.shares.wait_ms)
    hard = now / least if least else None
    expected = now / _expected_ms(change, subject, before)
    if hard is not None and not found.errors:
        # Usual rates of one kind of kernel may promise more than roofs allow where today's kernels are at theirs.
        expected = min(expected, max(1.0, hard))
    probe = asked.probes.get(name)
    helps, reason = _helps(hard, expected, probe, change, found, asked)
    return Prediction(name=name, hard=hard, expected=expected, probe=probe, helps=helps, why=f"{change.why}. {reason}")


def _expected_ms(change: Change, subject: Subject, before: "dict[Class, _Sums]") -> float:
    """Time of a sample's worth of work after the change, class by class."""
    shares = subject.shares
    after = _by_class(shares, change.expected, change.level, subject.ceilings)
    old = sum(sums.time for sums in before.values())
    new = sum(_class_ms(class_, sums, after[class_], change) for class_, sums in before.items())
    profiled = any(row.measured for row in shares.rows)
    # Time outside a profile's ops stays. Without a profile it is theirs as well, so it changes as they do.
    inserted = 0.0 if "movement" in change.removed else shares.inserted_ms
    host = shares.host_ms * change.host / change.samples
    rest = host + inserted + shares.unattributed_ms * (1.0 if profiled or not old else new / old)
    return shares.wait_ms + rest + new


@dataclass
class _Sums:
    """Of one class: its time, its bound and the cost of starting its ops, all in ms."""

    time: float = 0.0
    bound: float = 0.0
    floor: float = 0.0


def _class_ms(class_: Class, before: _Sums, after: _Sums, change: Change) -> float:
    if class_ in change.removed:
        return 0.0
    if class_ in change.kept or not before.bound:
        return before.time
    ratio = min(1.0, after.bound / change.samples / before.bound)
    floor = min(before.time, after.floor / change.samples)
    return max(before.time * ratio, floor)


def _by_class(shares: Shares, costs: Costs, level: str, ceilings: Ceilings) -> dict[Class, _Sums]:
    sums: dict[Class, _Sums] = defaultdict(_Sums)
    bounds: Sequence[Bound] = op_bounds(costs, ceilings, usually=True)
    for row, bound in zip(shares.rows, bounds, strict=True):
        one = sums[row.class_]
        one.time += row.time_ms
        one.bound += bound.at(level)
        one.floor += bound.floor_ms
    return sums


def _helps(
    hard: float | None, expected: float, probe: Span | None, change: Change, found: Verdict, asked: Asked
) -> tuple[Helps, str]:
    wanted = asked.target_speedup or WORTH_IT
    if asked.target_speedup and hard is not None and _most(hard, found) < asked.target_speedup:
        doubt = _not_arithmetic(found)
        if not doubt:
            return "stop", f"At most {hard:.3g}x is possible here, {asked.target_speedup:.3g}x is wanted."
        return "warn", f"At most {hard:.3g}x by the count, {wanted:.3g}x is wanted, but {doubt}."
    if probe is not None:
        told = f"Probed: {probe.value:.3g}x [{probe.low:.3g}, {probe.high:.3g}] (n={probe.n})."
        return ("go" if probe.low >= wanted else "warn"), told
    if change.doubt:
        return "warn", f"Expected {expected:.3g}x, but {change.doubt}."
    if expected < wanted:
        return "warn", f"Expected {expected:.3g}x, less than the {wanted:.3g}x that would count."
    if found.class_ == "kernel-limited":
        return "warn", f"Expected {expected:.3g}x, but the kernels are far from their bounds: probe it first."
    return "go", f"Expected {expected:.3g}x."


def _most(hard: float, found: Verdict) -> float:
    """The ceiling from the slow end of the measured interval."""
    whole = found.measured.end_to_end_ms if found.measured else None
    return hard * whole.high / whole.value if whole else hard


def _not_arithmetic(found: Verdict) -> str:
    """Why the hard ceiling is not to be relied upon; empty when it is."""
    if found.measured is None:
        return "the model was not measured"
    if found.errors:
        return "a measured time lies below its bound, so a ceiling or a count is wrong"
    if found.confidence == "ceilings contaminated":
        return "the ceilings were measured on a busy machine"
    return ""
