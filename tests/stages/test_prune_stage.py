"""The decisions of the prune stage: what finishes a candidate, when a round recovered, what is out of reach."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compress.candidate import Candidate
from compress.data import SINGLE_INPUT
from compress.errors import InputError
from compress.measure import isolated
from compress.probe.layers import square, timed
from compress.probe.width_table import Grid, Table, layers_to_time, measured
from compress.prune.counts import Counter
from compress.prune.groups import find_groups
from compress.prune.widths import by_time
from compress.recipe.spec import Gate, Prune, Ptq, Qat
from compress.stages import prune, prune_cut
from compress.stages.floats import missing_start
from compress.stages.prune import finishers
from compress.stages.prune_cut import Job

BENCH = isolated.Bench(provider="cpu", threads=1)


def test_a_candidate_is_finished_by_the_first_ptq_or_by_what_is_named():
    first, second, qat, last = Ptq(), Ptq(name="other"), Qat(), Ptq.model_validate({"name": "small", "from": "prune"})
    stages = [last, qat, first, second]
    assert finishers(stages, Prune()) == [first]
    assert finishers(stages, Prune(then=["other", "qat"])) == [second, qat]
    assert finishers(stages, Prune(then=[])) == []
    assert finishers([qat], Prune()) == []


def entry(**facts: Any) -> Any:
    return SimpleNamespace(facts=facts)


@pytest.mark.parametrize(
    ("gate", "reached", "recovered"),
    [
        ({"metric": "top1", "max_drop": 0.05}, 0.86, True),
        ({"metric": "top1", "max_drop": 0.05}, 0.84, False),
        ({"metric": "top1", "max_relative_drop": 0.1}, 0.82, True),
        ({"metric": "speedup", "min": 2}, 0.895, True),
        ({"metric": "speedup", "min": 2}, 0.88, False),
    ],
)
def test_a_round_recovered_when_the_held_out_score_is_within_the_gate(gate, reached, recovered):
    gates = [Gate.model_validate(gate)]
    context = SimpleNamespace(
        recipe=SimpleNamespace(gates=gates), inputs=SimpleNamespace(metric=SimpleNamespace(name="top1", sign=1))
    )
    job = Job(context, Prune(keep=0.25, steps=2), None)  # type: ignore[arg-type]
    trained = entry(record={"best_score": reached, "steps": 9, "stopped": ""}, float_score=0.9, cut_score=0.4)
    found, why = prune._recovery(job, 1, entry(cost=0.48, macs_share=0.4, params_share=0.5), trained)
    assert found is recovered
    assert "latency 0.48 of the whole predicted, 0.50 asked" in why
    assert ("not recovered" in why) is not recovered


def test_rounds_keep_equal_shares_and_end_at_what_is_asked():
    job = Job(None, Prune(keep=0.125, steps=3), None)  # type: ignore[arg-type]
    assert [job.share(number) for number in (1, 2, 3)] == pytest.approx([0.5, 0.25, 0.125])


class Held:
    """A context with a net and a step of channels, and nothing that is measured."""

    def __init__(self, net: nn.Module, feeds: dict[str, np.ndarray]) -> None:
        self.inputs = SimpleNamespace(model=net, feeds=feeds)


def chosen(spec: Prune, total_ms: float, monkeypatch: pytest.MonkeyPatch) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Flatten(), nn.Linear(32 * 16, 3)
    ).eval()
    feeds = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 1, 8, 8)).astype(np.float32)}
    groups = find_groups(net, feeds).groups
    counter = Counter(net, groups, feeds)
    grid = Grid(axes=((8, 32), (8, 32)), ms=((0.1, 0.3), (0.3, 1.0)))
    table = Table(total_ms=total_ms, in_net=1.0, layers={"2": grid}, counter=counter)
    monkeypatch.setattr("compress.stages.prune_times.round_to", lambda _context: 8)
    monkeypatch.setattr("compress.stages.prune_times.measured_table", lambda *_arguments: table)
    scores = {group.name: np.ones(len(group.units)) for group in groups}
    return prune_cut._chosen(Job(Held(net, feeds), spec, None), spec.keep, counter, scores)  # type: ignore[arg-type]


def test_widths_by_latency_come_from_the_table(monkeypatch):
    found = chosen(Prune(keep=0.5), 1.0, monkeypatch)
    assert found.cost <= 0.5
    assert set(found.widths.values()) <= {8, 16, 24, 32}


@pytest.mark.parametrize(
    ("spec", "total_ms", "fact", "remedy"),
    [
        (Prune(keep=0.3), 4.0, "0.30 of the latency cannot be reached: 0.78 stay", "Write keep: 0.78 or more"),
        (Prune(keep=0.3), 40.0, "because most of the time is not in layers that can be pruned", "remove the stage"),
        (Prune(keep=0.01, by="macs"), 1.0, "0.01 of the macs cannot be reached", "Write keep: 0.0"),
    ],
)
def test_a_wish_out_of_reach_is_refused_before_any_training(spec, total_ms, fact, remedy, monkeypatch):
    with pytest.raises(InputError) as told:
        chosen(spec, total_ms, monkeypatch)
    assert told.value.place == "stages.prune.keep"
    assert fact in told.value.fact
    assert remedy in told.value.remedy


def test_a_stage_waits_for_the_candidate_it_starts_from():
    spec = Ptq.model_validate({"from": "prune"})
    made = Candidate(name="prune", stage="prune", form="float", parent="model", artefact="x/model.onnx")
    assert missing_start(Ptq(), []) == ""
    assert missing_start(spec, [made]) == ""
    assert missing_start(spec, []) == "prune made no candidate to start from"
    assert missing_start(spec, [Candidate(name="prune", stage="prune", form="float", parent="model")])


def test_a_table_is_linear_between_what_was_timed_and_never_less_than_what_is_fixed():
    grid = Grid(axes=((8, 16), (4, 8)), ms=((1.0, 2.0), (2.0, 4.0)))
    assert (grid.whole, grid.at((8, 4)), grid.at((12, 6))) == (4.0, 1.0, 2.25)
    assert grid.at((4, 2)) == 1.0


LAYERS = {
    "conv": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1)),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 4, 1)),
    "grouped": lambda: nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, groups=2), nn.Conv2d(16, 4, 1)),
    "transposed": lambda: nn.Sequential(nn.Conv2d(3, 16, 1), nn.ConvTranspose2d(16, 16, 3), nn.Conv2d(16, 4, 1)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_of_a_net_can_be_timed_at_every_width(kind, monkeypatch):
    net = LAYERS[kind]().eval()
    feeds = {SINGLE_INPUT: np.zeros((2, 3, 8, 8), np.float32)}
    groups = find_groups(net, feeds).groups
    counter = Counter(net, groups, feeds)
    layers = layers_to_time(net, counter, 1, 4)
    assert set(layers) == {call.name for call in counter.calls}
    monkeypatch.setattr("compress.probe.layers.PAIR_SECONDS", 60.0)  # a loaded machine gets the time it needs
    files = [layer.draw((layer.axes[0][0], layer.axes[1][0])) for layer in layers.values()]
    assert all(ms is not None and ms > 0 for ms in timed(files, BENCH))


def test_products_are_timed_as_well_and_only_hot_layers_at_all_widths():
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).eval()
    feeds = {SINGLE_INPUT: np.zeros((2, 256), np.float32)}
    counter = Counter(net, find_groups(net, feeds).groups, feeds)
    whole, table = measured(layers_to_time(net, counter, 1, 8), BENCH)
    assert whole > 0
    assert table["0"]["axes"] == [[64, 128, 192, 256], [256]]
    assert len(table["0"]["ms"]) == 4


def test_a_square_convolution_is_drawn_at_its_width():
    file = square(57)
    assert [list(one.dims) for one in file.graph.initializer] == [[57, 57, 3, 3]]


def test_greedy_choice_stops_when_nothing_is_saved():
    net = LAYERS["conv"]().eval()
    groups = find_groups(net, {SINGLE_INPUT: np.zeros((2, 3, 8, 8), np.float32)}).groups
    found = by_time(groups, 0.5, lambda _widths: 1.0, {one.name: np.ones(len(one.units)) for one in groups}, 4)
    assert found.cost == 1.0
