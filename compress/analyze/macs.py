"""Multiply-accumulates from shapes: the arithmetic both front ends share. Pure Python."""

from collections.abc import Sequence
from math import prod

Shape = Sequence[int]


def matmul(out: Shape, inner: int) -> int:
    """out: any broadcast result of a matrix product; inner: the summed extent."""
    return prod(out) * inner


def convolution(out: Shape, weight: Shape) -> int:
    """out: (n, cout, *space); weight: (cout, cin / groups, *kernel). Stride and dilation are in `out` already."""
    return prod(out) * prod(weight[1:])


def transposed_convolution(x: Shape, weight: Shape) -> int:
    """x: (n, cin, *space); weight: (cin, cout / groups, *kernel): every input element is scattered once."""
    return prod(x) * prod(weight[1:])


def attention(out: Shape, query_size: int, keys: int) -> int:
    """out: (..., queries, value_size): QK^T sums over query_size, PV over the keys. The full matrix, causal or not."""
    return prod(out[:-1]) * keys * (query_size + out[-1])


def recurrent(steps: int, matrices: Sequence[Shape]) -> int:
    """steps: time steps x batch; matrices: every 2-D weight of every layer and direction, each applied once a step."""
    return steps * sum(prod(shape) for shape in matrices if len(shape) == 2)


def recurrent_from_sizes(*, steps: int, gates: int, features: int, hidden: int, layers: int, directions: int) -> int:
    """As `recurrent`, where the weights are packed out of sight; without projection."""
    first = features + hidden
    later = (layers - 1) * (directions * hidden + hidden)
    return steps * directions * gates * hidden * (first + later)


def einsum(equation: str, shapes: Sequence[Shape]) -> int:
    """Contract the operands from left to right; an index only one operand has is summed before it is multiplied."""
    terms, output = _expand(equation, shapes)
    total, held = 0, terms[0]
    for position, term in enumerate(terms[1:], start=1):
        later = set(output).union(*terms[position + 1 :])
        sizes = _merge(held, term)
        shared = set(held) & set(term)
        alive = {index for index in sizes if index in shared or index in later}
        total += prod(sizes[index] for index in alive)
        held = {index: sizes[index] for index in alive if index in later}
    return total


def _expand(equation: str, shapes: Sequence[Shape]) -> tuple[list[dict[str, int]], set[str]]:
    """Sizes by index for each operand; dimensions behind an ellipsis are named from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = [_named(term, shape) for term, shape in zip(left.split(","), shapes, strict=True)]
    hidden = {index for term in terms for index in term if index.startswith(".")}
    if arrow:
        return terms, set(right.replace(".", "")) | (hidden if "..." in right else set())
    letters = left.replace(",", "").replace(".", "")
    return terms, {letter for letter in letters if letters.count(letter) == 1} | hidden


def _named(term: str, shape: Shape) -> dict[str, int]:
    before, dots, after = term.partition("...")
    count = len(shape) - len(before) - len(after) if dots else 0
    names = [*before, *(f".{count - place}" for place in range(count)), *after]
    return dict(zip(names, shape, strict=True))


def _merge(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
    return {index: max(left.get(index, 1), right.get(index, 1)) for index in {**left, **right}}
