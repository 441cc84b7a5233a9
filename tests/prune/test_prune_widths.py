"""How many channels stay: budgets are met, cliffs respected, cold layers left alone, torch-pruning's counts matched."""

import copy

import numpy as np
import pytest
import torch
import torch_pruning
from torch import nn

from compress import zoo
from compress.data import SINGLE_INPUT
from compress.errors import InputError
from compress.prune.counts import Counter
from compress.prune.graph import Graph
from compress.prune.groups import find_groups, structure_of
from compress.prune.importance import importance_of
from compress.prune.replay import replay_
from compress.prune.widths import allowed_widths, by_one_ratio, by_time, cliff, least_important, uniform

FEEDS = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 1, 28, 28)).astype(np.float32)}


@pytest.fixture(scope="module")
def resnet():
    net = zoo.fashion_resnet()
    found = find_groups(net, FEEDS)
    return net, found.groups, Counter(net, found.groups, FEEDS)


def pruned(net, groups, widths):
    removed = {group.name: range(widths[group.name], len(group.units)) for group in groups}
    other = copy.deepcopy(net)
    replay_(other, structure_of(net, groups, removed))
    return other


@pytest.mark.parametrize("ratio", [0.5, 0.75])
def test_macs_and_params_are_those_of_torch_pruning_at_the_same_ratio(resnet, ratio):
    net, groups, counter = resnet
    example = torch.from_numpy(FEEDS[SINGLE_INPUT][:1])
    theirs = copy.deepcopy(net)
    torch_pruning.pruner.MagnitudePruner(
        theirs, example, importance=torch_pruning.importance.MagnitudeImportance(p=2), pruning_ratio=1 - ratio,
        round_to=4, ignored_layers=[theirs.head],
    ).step()  # fmt: skip
    macs, params = torch_pruning.utils.count_ops_and_params(theirs, example)
    whole = torch_pruning.utils.count_ops_and_params(net, example)
    widths = uniform(groups, ratio, 4)
    assert counter.macs(widths) / counter.macs(counter.whole) == pytest.approx(macs / whole[0], rel=0.02)
    assert counter.params(widths) / counter.params(counter.whole) == pytest.approx(params / whole[1], rel=0.02)


@pytest.mark.parametrize("name", ["fashion_resnet", "fashion_mobile"])
def test_counts_from_shapes_are_those_of_the_net_that_is_built(name):
    net = getattr(zoo, name)()
    groups = find_groups(net, FEEDS).groups
    counter = Counter(net, groups, FEEDS)
    widths = uniform(groups, 0.5, 4)
    small = pruned(net, groups, widths)
    assert counter.params(widths) == sum(one.numel() for one in small.parameters())
    assert counter.macs(widths) == Counter(small, [], FEEDS).macs({})
    assert counter.shapes_at(widths) == {key: tuple(one.shape) for key, one in small.named_parameters()}


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("measure", ["macs", "params"])
def test_a_budget_of_counts_is_used_and_never_passed(resnet, keep, measure):
    _, groups, counter = resnet
    cost = getattr(counter, measure)
    chosen = by_one_ratio(groups, keep, cost, 8)
    assert keep - 0.1 < chosen.cost <= keep
    assert chosen.cost == pytest.approx(cost(chosen.widths) / cost(counter.whole))
    assert all(width % 8 == 0 for width in chosen.widths.values())


def test_widths_are_multiples_of_the_machines_step_or_whole(resnet):
    _, groups, _ = resnet
    for group in groups:
        assert all(units % 16 == 0 or units == len(group.units) for units in allowed_widths(group, 16))


def test_heads_are_not_rounded_and_a_narrow_group_stays_whole():
    net = zoo.digits_encoder()
    feeds = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)}
    query = find_groups(net, feeds).groups[0]
    assert allowed_widths(query, 64) == [1, 2, 3, 4]
    stem = next(group for group in find_groups(zoo.fashion_mobile(), FEEDS).groups if group.channels == 8)
    assert allowed_widths(stem, 8) == [8]


def test_a_cliff_is_seen_where_nothing_between_two_multiples_is_faster():
    def stairs(step):
        return {width: float(-(-width // step)) for width in range(49, 65)}

    for step in (16, 8, 4):
        assert cliff(stairs(step)) == step
    assert cliff({width: float(width - 40) ** 2 for width in range(49, 65)}) == 1
    # 57 channels slower than 64, 56 faster than both, as on AVX2.
    assert cliff(stairs(8) | {57: 9.0, 58: 8.5}) == 8


class Stairs:
    """Time by layers that cost by whole steps of 8 channels; some cost nothing."""

    def __init__(self, hot, step=8):
        self.hot, self.step = hot, step

    def __call__(self, widths):
        return 1.0 + sum(-(-widths[name] // self.step) for name in self.hot)


def scores_of(groups, seed=0):
    drawn = np.random.default_rng(seed)
    return {group.name: drawn.uniform(0.5, 1.5, len(group.units)) for group in groups}


def test_layers_that_are_not_hot_stay_whole(resnet):
    _, groups, counter = resnet
    hot = [groups[1].name, groups[4].name]
    chosen = by_time(groups, 0.5, Stairs(hot), scores_of(groups), 8)
    assert chosen.cost <= 0.5
    narrowed = {name for name, units in chosen.widths.items() if units < counter.whole[name]}
    assert narrowed == set(hot)


def test_no_step_is_taken_that_saves_nothing(resnet):
    """With stairs of 32 channels only their edges are worth anything."""
    _, groups, counter = resnet
    names = [group.name for group in groups if group.channels > 32]
    chosen = by_time(groups, 0.6, Stairs(names, step=32), scores_of(groups), 8)
    changed = [chosen.widths[name] for name in names if chosen.widths[name] < counter.whole[name]]
    assert changed
    assert all(width % 32 == 0 for width in changed)


def test_a_budget_out_of_reach_is_told_by_what_stays(resnet):
    _, groups, _ = resnet
    chosen = by_time(groups, 0.1, lambda widths: 100.0 + sum(widths.values()) / 100, scores_of(groups), 8)
    assert chosen.cost > 0.9


def test_no_group_becomes_a_bottleneck(resnet):
    """Equal savings a channel: the budget is shared out, not taken from one group."""
    _, groups, counter = resnet
    wide = [group for group in groups if group.channels > 16]
    chosen = by_time(groups, 0.5, lambda widths: float(sum(widths[one.name] for one in wide)), scores_of(groups), 8)
    left = [chosen.widths[one.name] / counter.whole[one.name] for one in wide]
    assert min(left) > 0.25


def test_what_goes_matters_least_and_what_went_stays_gone():
    scores = {"a": np.array([5.0, 1.0, 4.0, 2.0, 3.0])}
    assert least_important(scores, {"a": 3}, {}) == {"a": [1, 3]}
    assert least_important(scores, {"a": 2}, {"a": [0, 1]}) == {"a": [0, 1, 3]}
    assert least_important(scores, {"a": 5}, {}) == {"a": []}


@pytest.mark.parametrize("name", ["magnitude", "taylor", "bn_scale"])
def test_a_dead_channel_matters_least_by_every_criterion(name):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.Flatten(1), nn.Linear(6 * 24 * 24, 3)
    ).eval()
    with torch.no_grad():
        for tensor in (net[0].weight[5], net[1].weight[5], net[1].bias[5], net[3].weight[:, 5]):
            tensor.zero_()
    groups = find_groups(net, FEEDS).groups
    graph = Graph(net, FEEDS)
    scores = importance_of(graph, groups, name, lambda model: model(torch.from_numpy(FEEDS["input"])).square().mean())
    first = scores["0"]
    assert first.argmin() == 5
    assert first.mean() == pytest.approx(1)
    assert all(len(scores[group.name]) == len(group.units) for group in groups)


def test_weights_that_are_no_numbers_are_told():
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    groups = find_groups(net, FEEDS).groups
    with torch.no_grad():
        net[0].weight[2] = float("nan")
    with pytest.raises(InputError, match="importance of 0's channels is no number"):
        importance_of(Graph(net, FEEDS), groups, "magnitude")
