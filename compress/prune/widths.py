"""How many units each group keeps: by a budget of macs, params or measured time. Pure arithmetic."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compress.prune.counts import Widths
from compress.prune.groups import Group
from compress.prune.importance import Scores

CostOf = Callable[[Widths], float]
# A step that saves less than this share of the whole time is within the noise of a table's timings.
LEAST_SAVED = 0.005
BISECTIONS = 30
# Widths a group is looked at with, beside the whole: more make a search long and its steps too small to be measured.
MOST_WIDTHS = 32
# Two timings of one kernel differ by less.
SAME_TIME = 0.05


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """widths: units kept by group; cost: by the measure asked, as a share of the whole model's."""

    widths: dict[str, int]
    cost: float


def allowed_widths(group: Group, round_to: int) -> list[int]:
    """Units that may be left, ascending: the whole, and those whose channels are a multiple of `round_to`.

    Heads are not rounded: their own size is what kernels see. A group with no smaller multiple stays whole.
    """
    size = len(group.units[0])
    fixed = group.channels - sum(len(unit) for unit in group.units)
    narrower = [
        units for units in range(1, len(group.units)) if group.settings or (fixed + units * size) % round_to == 0
    ]
    stride = math.ceil(len(narrower) / MOST_WIDTHS) if narrower else 1
    return [*narrower[stride - 1 :: stride], len(group.units)]


def uniform(groups: Sequence[Group], ratio: float, round_to: int) -> dict[str, int]:
    """Units left when every group keeps `ratio` of its own, to the nearest allowed width; the wider of two as near."""
    widths = {}
    for group in groups:
        wanted = ratio * len(group.units)
        widths[group.name] = min(allowed_widths(group, round_to), key=lambda units: (abs(units - wanted), -units))
    return widths


def by_one_ratio(groups: Sequence[Group], keep: float, cost: CostOf, round_to: int) -> Chosen:
    """The widest uniform widths whose cost is at most `keep` of the whole, by bisection over the ratio.

    Widths come in steps, so what is left of the budget goes to single groups, the largest relative step first.
    """
    whole = cost({group.name: len(group.units) for group in groups})
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if cost(uniform(groups, middle, round_to)) <= keep * whole:
            low = middle
        else:
            high = middle
    widths = _filled(groups, uniform(groups, low, round_to), lambda wider: cost(wider) <= keep * whole, round_to)
    return Chosen(widths=widths, cost=cost(widths) / whole)


def by_time(groups: Sequence[Group], keep: float, cost: CostOf, scores: Mapping[str, Scores], round_to: int) -> Chosen:
    """Narrow the group that saves most time for the importance it loses, until `keep` of the time is left.

    The price of going from a kept share s of a group's importance to s' is log(s / s'): it grows without bound, so no
    group becomes a bottleneck. Groups whose layers take no time worth the name save nothing and stay as they are.
    """
    widths = {group.name: len(group.units) for group in groups}
    whole = spent = cost(widths)
    allowed = {group.name: allowed_widths(group, round_to) for group in groups}
    shares = {group.name: _kept_shares(scores[group.name]) for group in groups}
    while spent > keep * whole:
        steps = [
            (name, units, cost({**widths, name: units}))
            for name, choices in allowed.items()
            for units in choices
            if units < widths[name]
        ]
        useful = [step for step in steps if spent - step[2] >= LEAST_SAVED * whole]
        if not useful:
            break
        name, units, after = max(
            useful, key=lambda step: (spent - step[2]) / max(1e-9, _price(shares[step[0]], widths[step[0]], step[1]))
        )
        widths[name], spent = units, after
    return Chosen(widths=widths, cost=spent / whole)


def least_important(
    scores: Mapping[str, Scores], widths: Widths, gone: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """Units that go so that `widths` are left: those gone before, then those that matter least."""
    removed = {}
    for name, kept in widths.items():
        before = set(gone.get(name, ()))
        order = [int(unit) for unit in np.argsort(scores[name], kind="stable") if int(unit) not in before]
        count = max(0, len(scores[name]) - kept - len(before))
        removed[name] = sorted([*before, *order[:count]])
    return removed


def cliff(ms: Mapping[int, float]) -> int:
    """The largest step of channels between whose multiples nothing is faster. ms: kernel time by channels."""
    for step in (16, 8, 4, 2):
        rounded = {width: -(-width // step) * step for width in ms}
        if all(ms[width] >= (1 - SAME_TIME) * ms[up] for width, up in rounded.items() if up in ms):
            return step
    return 1


def _filled(
    groups: Sequence[Group], widths: dict[str, int], fits: Callable[[Widths], bool], round_to: int
) -> dict[str, int]:
    """Widths after widening single groups as long as one fits."""
    while True:
        wider = {
            group.name: next((units for units in allowed_widths(group, round_to) if units > widths[group.name]), 0)
            for group in groups
        }
        order = sorted((name for name, units in wider.items() if units), key=lambda name: widths[name] / wider[name])
        fitting = next((name for name in order if fits({**widths, name: wider[name]})), None)
        if fitting is None:
            return widths
        widths = {**widths, fitting: wider[fitting]}


def _price(shares: Sequence[float], now: int, then: int) -> float:
    return math.log(shares[now] / shares[then])


def _kept_shares(scores: Scores) -> list[float]:
    """Share of a group's importance left with 0, 1, ... units kept, the most important first."""
    ordered = np.sort(np.maximum(scores, 0.0))[::-1]
    kept = np.concatenate([[0.0], np.cumsum(ordered)])
    if kept[-1] <= 0:
        kept = np.arange(len(kept), dtype=np.float64)
    return [max(float(share), 1e-9) for share in kept / kept[-1]]
