"""Which operators go back to float: few, the ones that matter, at the least cost in milliseconds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_nets import node, normal, save

from compress.quantize.graph import load_graph
from compress.quantize.sensitivity import (
    Operator,
    by_count,
    by_time,
    cheapest_cover,
    moving_costs,
    smallest_restoring,
    units_of,
)


def operators(noise: list[float], cost_ms: list[float]) -> list[Operator]:
    rows = enumerate(zip(noise, cost_ms, strict=True))
    return [Operator(nodes=(f"op{i}",), noise=n, score_lost=0.0, cost_ms=c) for i, (n, c) in rows]


def left_below(all_: list[Operator], limit: float):
    """The gate: the noise of what stays in int8 is at most `limit`."""
    noise = {node: one.noise for one in all_ for node in one.nodes}
    return lambda nodes: sum(noise.values()) - sum(noise[node] for node in nodes) <= limit


def names(moved) -> set[str]:
    return {one.name for one in moved.operators}


def test_the_one_layer_that_spoils_everything_goes_back_alone():
    given_ = operators([0.001, 0.5, 0.002, 0.001], [0.1, 0.1, 0.1, 0.1])
    assert names(smallest_restoring(given_, left_below(given_, 0.01), by_time)) == {"op1"}


def test_of_operators_alike_in_noise_the_cheap_ones_go_back():
    given_ = operators([0.10, 0.09, 0.09, 0.01], [5.0, 0.1, 0.1, 0.1])
    passes = left_below(given_, 0.115)
    ours, noisiest = (smallest_restoring(given_, passes, cost) for cost in (by_time, by_count))
    assert names(ours) == {"op1", "op2"}
    assert names(noisiest) == {"op0", "op1"}
    assert ours.cost_ms < noisiest.cost_ms


costs = st.lists(st.tuples(st.floats(1e-6, 1), st.floats(-0.1, 5)), min_size=1, max_size=7)


@settings(max_examples=80, deadline=None)
@given(costs, st.floats(0, 1))
def test_what_is_moved_passes_and_nothing_of_it_is_idle(rows, share):
    given_ = operators([n for n, _ in rows], [c for _, c in rows])
    passes = left_below(given_, share * sum(one.noise for one in given_))
    moved = smallest_restoring(given_, passes, by_time)
    if moved is None:
        noisiest = sorted(given_, key=lambda one: -one.noise)[: max(1, 3 * len(given_) // 4)]
        assert not passes(tuple(one.name for one in noisiest))
        return
    assert passes(moved.nodes)
    for one in moved.operators:
        rest = [node for node in moved.nodes if node not in one.nodes]
        assert not rest or not passes(tuple(rest))


@settings(max_examples=80, deadline=None)
@given(costs, st.floats(0.01, 0.99))
def test_a_cover_brings_the_noise_at_no_more_than_twice_the_least_cost(rows, share):
    given_ = operators([n for n, _ in rows], [abs(c) for _, c in rows])
    wanted = share * sum(one.noise for one in given_)
    chosen = cheapest_cover(given_, wanted, by_time)
    assert sum(one.noise for one in chosen) >= wanted * (1 - 1e-9)
    subsets = itertools.chain.from_iterable(itertools.combinations(given_, k) for k in range(len(given_) + 1))
    best = min(sum(map(by_time, one)) for one in subsets if sum(x.noise for x in one) >= wanted)
    assert sum(map(by_time, chosen)) <= 2 * best * (1 + 1e-9)


def test_where_nothing_helps_there_is_no_set():
    given_ = operators([0.1, 0.2], [0.1, 0.1])
    assert smallest_restoring(given_, lambda _nodes: False, by_time) is None
    assert smallest_restoring([], lambda _nodes: True, by_time) is None


def test_a_set_is_judged_once():
    given_, asked = operators([0.4, 0.3, 0.2, 0.1], [0.1] * 4), []
    gate = left_below(given_, 0.15)

    def passes(nodes: tuple[str, ...]) -> bool:
        asked.append(nodes)
        return gate(nodes)

    moved = smallest_restoring(given_, passes, by_time)
    assert len(asked) == len(set(asked)) == moved.tried


def test_costs_are_times_in_float_less_times_in_int8_plus_the_conversions():
    found = moving_costs([("conv", "relu"), ("add",)], {"conv": 2.0, "add": 0.1}, {"conv": 1.0, "add": 0.3}, 0.25)
    assert found == pytest.approx({"conv": 1.25, "add": 0.05})


def test_units_hold_the_activation_that_is_fused_and_leave_out_what_only_moves_values(tmp_path):
    values = {"w": normal(0, 4, 3, 1, 1), "v": normal(1, 4, 4, 1, 1), "shape": np.array([0, -1])}
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Relu", ["a"], "b"),
        node("Conv", ["b", "v"], "c"),
        node("Add", ["b", "c"], "d"),
        node("Reshape", ["d", "shape"], "y"),
    ]
    graph = load_graph(save(tmp_path / "m.onnx", nodes, values, [3, 2, 2], [16]))
    op_types = ("Conv", "Relu", "Add", "Reshape")
    assert units_of(graph, op_types, []) == [("n0/Conv", "n1/Relu"), ("n2/Conv",), ("n3/Add",)]
    assert units_of(graph, op_types, ["n2/Conv"]) == [("n0/Conv", "n1/Relu"), ("n3/Add",)]
