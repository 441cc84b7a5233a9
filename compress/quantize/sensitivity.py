"""Which operators to move back to float: the noise each brings against the milliseconds it saves. Pure arithmetic."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from compress.quantize.graph import Graph

# What runs inside the kernel of the product before it.
FUSED_AFTER = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid")
# These move or pick values and add no noise of their own.
NO_NOISE = (
    "Reshape", "Transpose", "MaxPool", "Flatten", "Squeeze", "Unsqueeze", "Split", "Slice", "Gather", "Pad",
    *FUSED_AFTER,
)  # fmt: skip
# More operators than this in float, and another scheme or method is the better answer.
MOST_MOVED = 24


@dataclass(frozen=True, kw_only=True)
class Operator:
    """nodes: a quantized node and what is fused into it; noise: of the output, relative to the signal, when this is all

    that is quantized; score_lost: of the metric, in the same case; cost_ms: what moving it back to float takes longer.
    """

    nodes: tuple[str, ...]
    noise: float
    score_lost: float
    cost_ms: float

    @property
    def name(self) -> str:
        return self.nodes[0]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A set of operators in float that passes. cost_ms: predicted; tried: sets that were judged to find it."""

    operators: tuple[Operator, ...]
    cost_ms: float
    tried: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for operator in self.operators for node in operator.nodes)


def units_of(graph: Graph, op_types: Sequence[str], left: Collection[str]) -> list[tuple[str, ...]]:
    """Quantized nodes, each with the activation that is fused into it. left: nodes in float already."""
    units = []
    for node in graph.proto.graph.node:
        if node.op_type not in op_types or node.op_type in NO_NOISE or node.name in left:
            continue
        if not any(value not in graph.initializers for value in node.input):
            continue
        followers = graph.consumers.get(node.output[0], [])
        fused = [one.name for one in followers if len(followers) == 1 and one.op_type in FUSED_AFTER]
        units.append((node.name, *fused))
    return units


def moving_costs(
    units: Iterable[tuple[str, ...]], float_ms: Mapping[str, float], int8_ms: Mapping[str, float], boundary_ms: float
) -> dict[str, float]:
    """By unit, what it takes longer in float than in int8, conversions around it included. Times by node."""
    return {
        unit[0]: sum(float_ms.get(node, 0.0) - int8_ms.get(node, 0.0) for node in unit) + boundary_ms for unit in units
    }


def cheapest_cover(operators: Sequence[Operator], noise: float, cost: Callable[[Operator], float]) -> list[Operator]:
    """Operators that bring at least `noise` together, at no more than twice the least cost (Gens and Levner 1979).

    By best ratio first; each operator that would complete the set is tried as its last one; what is not needed goes.
    """
    base: list[Operator] = []
    covers: list[list[Operator]] = []
    for operator in sorted(operators, key=lambda one: (-one.noise / max(cost(one), 1e-9), one.name)):
        if _total([*base, operator]) >= noise:
            covers.append(_without_idle([*base, operator], noise, cost))
        else:
            base.append(operator)
    return min(covers, key=lambda chosen: (sum(map(cost, chosen)), len(chosen)), default=list(operators))


def _without_idle(chosen: list[Operator], noise: float, cost: Callable[[Operator], float]) -> list[Operator]:
    for operator in sorted(chosen, key=lambda one: (-cost(one), one.name)):
        rest = [one for one in chosen if one is not operator]
        if _total(rest) >= noise:
            chosen = rest
    return chosen


def smallest_restoring(
    operators: Sequence[Operator], passes: Callable[[tuple[str, ...]], bool], cost: Callable[[Operator], float]
) -> Moved | None:
    """The cheapest set, as far as noise tells, with which `passes` holds; None when even the largest one fails.

    The noise to take away grows in steps of the noisiest operators: one, two, ... so that at equal cost the answer is
    the smallest number of operators.
    """
    useful = sorted((one for one in operators if one.noise > 0), key=lambda one: (-one.noise, one.name))[:MOST_MOVED]
    # With more than three in four of them in float the file is no longer a quantized one.
    most = max(1, 3 * len(operators) // 4)
    levels = [_total(useful[: k + 1]) for k in range(min(most, len(useful)))]
    judged: dict[tuple[str, ...], bool] = {}

    def set_at(k: int) -> tuple[Operator, ...]:
        # A hair less, or sums in another order would miss the level.
        return tuple(cheapest_cover(useful, levels[k] * (1 - 1e-9), cost))

    def holds(chosen: tuple[Operator, ...]) -> bool:
        nodes = tuple(sorted(node for operator in chosen for node in operator.nodes))
        if nodes not in judged:
            judged[nodes] = passes(nodes)
        return judged[nodes]

    first = _first_true(len(levels), lambda k: holds(set_at(k)))
    if first is None:
        return None
    chosen = _pruned(set_at(first), holds, cost)
    return Moved(operators=chosen, cost_ms=sum(one.cost_ms for one in chosen), tried=len(judged))


def by_time(operator: Operator) -> float:
    """Milliseconds; an operator that is no slower in float costs next to nothing."""
    return max(operator.cost_ms, 1e-4)


def by_count(_operator: Operator) -> float:
    """Every operator alike: what is chosen then is the noisiest, whatever it costs."""
    return 1.0


def _first_true(n: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest index that holds, found by doubling and halving: larger sets pass when smaller ones do."""
    low, high = -1, 0
    while high < n and not holds(high):
        low, high = high, max(2 * high, high + 1)
    if high >= n:
        if not n or low == n - 1 or not holds(n - 1):
            return None
        high = n - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _pruned(
    chosen: tuple[Operator, ...], holds: Callable[[tuple[Operator, ...]], bool], cost: Callable[[Operator], float]
) -> tuple[Operator, ...]:
    """Without the operators that turn out not to be needed, the dearest tried first."""
    for operator in sorted(chosen, key=lambda one: (-cost(one), one.name)):
        rest = tuple(one for one in chosen if one is not operator)
        if rest and holds(rest):
            chosen = rest
    return chosen


def _total(operators: Iterable[Operator]) -> float:
    return sum(operator.noise for operator in operators)
