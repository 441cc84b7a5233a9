"""Probes: the small graphs compute what the model's nodes compute, and the arithmetic around them adds up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compress.device.runtime import open_session
from compress.export.onnx import export_onnx
from compress.measure import isolated
from compress.measure.kernels import _runs
from compress.measure.stats import Interval
from compress.probe import graphs
from compress.probe.depth import removable_share
from compress.probe.estimate import Change, Whole, kernel_ratio, speedup, whole_of
from compress.probe.probe import graph_mode, probe
from compress.probe.pruned import kept_channels, pruned
from compress.probe.sites import Net, Site
from compress.zoo import nets

BENCH = isolated.Bench(provider="cpu", threads=1)
FEEDS = {
    "digits_cnn": (2, 1, 8, 8),
    "digits_encoder": (2, 1, 8, 8),
    "fashion_mobile": (2, 1, 28, 28),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("probe")
    for name in FEEDS:
        export_onnx(getattr(nets, name)(), feeds(name), folder / f"{name}.onnx", ["output"])
    return {name: folder / f"{name}.onnx" for name in FEEDS}


def feeds(name: str) -> dict[str, Any]:
    return {"input": np.random.default_rng(0).standard_normal(FEEDS[name]).astype(np.float32)}


def net_of(files: dict[str, Path], name: str) -> Net:
    return Net(files[name], feeds(name))


def values_of(path: Path, given: dict[str, Any], names: list[str], folder: Path) -> dict[str, Any]:
    """Tensors inside a file, computed without optimisation."""
    model = onnx.load(path)
    there = {value.name for value in model.graph.output}
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name not in there
    )
    onnx.save(model, folder / "open.onnx")
    session = open_session(folder / "open.onnx", optimise=False)
    return dict(zip(names, session.run(names, given), strict=True))


def run(model: onnx.ModelProto, given: dict[str, Any], folder: Path) -> list[Any]:
    onnx.checker.check_model(model) if not any(n.domain for n in model.graph.node) else None
    onnx.save(model, folder / "small.onnx")
    return open_session(folder / "small.onnx").run(None, given)


def made_up(model: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }


@pytest.mark.parametrize("name", FEEDS)
def test_a_site_in_float_equals_its_node_in_the_model(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    net = net_of(files, name)
    nodes = {node.name: node for node in net.model.graph.node}
    for site in net.sites:
        node = nodes[site.name]
        end = net.consumers[node.output[0]][0].output[0] if site.tail else node.output[0]
        names = [node.input[i] for i in site.activations]
        inside = values_of(files[name], feeds(name), [*dict.fromkeys([*names, end])], tmp_path)
        given = {f"in{i}": inside[node.input[i]] for i in site.activations}
        model = graphs.draw(site, copies=2, opset=net.opset)
        for output in run(model, given, tmp_path):
            np.testing.assert_allclose(output, inside[end], rtol=1e-4, atol=1e-4)


@given(st.integers(1, 4096), st.floats(0, 0.99))
def test_kept_channels_are_whole_multiples_and_never_none(channels: int, ratio: float) -> None:
    kept = kept_channels(channels, ratio)
    assert kept == channels if channels <= 8 else kept % 8 == 0 and kept >= 8
    assert abs(kept - channels * (1 - ratio)) <= 8


@pytest.mark.parametrize("ratio", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("name", FEEDS)
def test_a_pruned_site_runs_and_keeps_the_models_ends(
    name: str, ratio: float, files: dict[str, Path], tmp_path: Path
) -> None:
    net = net_of(files, name)
    for site in net.sites:
        small = pruned(site, ratio)
        model = graphs.draw(small, copies=1, opset=net.opset)
        assert [output.shape for output in run(model, made_up(model), tmp_path)] == [small.output]
        if site.first:
            assert small.shapes[0] == site.shapes[0]
        if site.last:
            assert small.output == site.output


def test_a_depthwise_site_keeps_one_filter_per_channel(files: dict[str, Path]) -> None:
    deep = [site for site in net_of(files, "fashion_mobile").sites if site.attributes.get("group", 1) > 1]
    assert deep
    for site in deep:
        small = pruned(site, 0.5)
        assert small.attributes["group"] == small.shapes[0][1] == small.output[1] == kept_channels(site.output[1], 0.5)


def site_of(net: Net, name: str) -> Site:
    return next(site for site in net.sites if site.name == name)


def test_a_fused_kernel_is_traced_back_to_its_node(files: dict[str, Path]) -> None:
    net = net_of(files, "digits_cnn")
    conv = net.sites[0]
    relu = net.consumers[next(n for n in net.model.graph.node if n.name == conv.name).output[0]][0]
    assert net.owner(f"{relu.name}_nchwc") == conv.name
    assert net.owner(conv.name) == conv.name
    assert net.owner("ReorderOutput") is None
    encoder = net_of(files, "digits_encoder")
    assert encoder.owner("blocks.0/MatMul/MatMulScaleFusion/") == "blocks.0/MatMul"
    assert encoder.owner("blocks.0/MatMul_2") == "blocks.0/MatMul_2"


def interval(value: float) -> Interval:
    return Interval(value=value, low=value * 0.9, high=value * 1.1, n=9)


WHOLE = Whole(total_ms=10.0, spread=0.0, kernels_ms={"a": 6.0, "b": 2.0})


def test_the_new_time_is_the_old_one_less_what_was_replaced_plus_what_replaces_it() -> None:
    found = speedup(WHOLE, [Change(now_ms=6.0, ratio=interval(0.5))])
    assert found.value == pytest.approx(10 / (10 - 6 + 3))
    assert found.low == pytest.approx(10 / (4 + 6 * 0.55))
    assert found.high == pytest.approx(10 / (4 + 6 * 0.45))


def test_the_profilers_cost_is_taken_off_both_sides() -> None:
    answer = {"a": {"blocks_ms": [0.030] * 8, "nodes": 2}, "b": {"blocks_ms": [0.030] * 8, "nodes": 4}}
    assert kernel_ratio(answer, floor_ms=0.005, copies=2).value == pytest.approx(0.010 / 0.020)


def test_kernels_never_take_longer_than_the_call_they_are_in() -> None:
    whole = whole_of([1.0, 1.0, 1.0], [{"name": "a", "time_ms": 3.0}, {"name": "b", "time_ms": 1.0}], 0.0)
    assert sum(whole.kernels_ms.values()) == pytest.approx(1.0)


class FakeWorker:
    """Answers like the worker process: every kernel takes 1 ms, its replacement `factor` of that."""

    def __init__(self, factor: float, answered: int = 10**6) -> None:
        self.factor, self.answered = factor, answered
        self.asked: list[int] = []
        self.compared: list[Path] = []
        self.seconds: list[float] = []

    def probe_pairs(self, idle: Path, pairs: Any, bench: Any, seconds: float) -> dict[str, Any]:
        self.asked.append(len(pairs))
        self.seconds.append(seconds)
        one = {"a": {"blocks_ms": [1.0] * 8, "nodes": 1}, "b": {"blocks_ms": [self.factor] * 8, "nodes": 1}}
        return {"floor_ms": 0.0, "pairs": [one if i < self.answered else None for i in range(len(pairs))]}

    def time_in_turns(
        self, a: Path, b: Path, feeds: Any, bench: Any, seconds: float, batches: Any = (None, None)
    ) -> dict[str, Any]:
        """A call takes as long as the root of its samples, whatever the file."""
        self.seconds.append(seconds)
        self.compared.append(b)
        a_ms, b_ms = (100.0 * (batch or 2) ** 0.5 for batch in batches)
        ratio = {"value": a_ms / b_ms, "low": 0.99 * a_ms / b_ms, "high": 1.01 * a_ms / b_ms, "n": 9}
        return {"ratio": ratio, "a_ms": [a_ms] * 9, "b_ms": [b_ms] * 9}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    worker = FakeWorker(0.5)
    monkeypatch.setattr(isolated, "probe_pairs", worker.probe_pairs)
    monkeypatch.setattr(isolated, "time_in_turns", worker.time_in_turns)
    return worker


def profile_of(net: Net, ms: float = 1.0) -> list[dict[str, Any]]:
    return [{"name": site.name, "op": site.op, "time_ms": ms} for site in net.sites]


def test_the_sites_that_hold_the_time_are_timed_and_their_share_is_said(
    files: dict[str, Path], fake: FakeWorker
) -> None:
    net = net_of(files, "fashion_mobile")
    nodes = [*profile_of(net), {"name": "other", "op": "Softmax", "time_ms": 50.0}]
    found = probe(files["fashion_mobile"], "prune-50", feeds("fashion_mobile"), BENCH, nodes=nodes)
    assert found.speedup is not None
    # batch 2 takes 141.4 ms in the fake; each site 1 ms, and half a microsecond that the profiler cuts off
    assert found.covered_share == pytest.approx(len(net.sites) / (100 * 2**0.5), rel=1e-3)
    assert found.speedup.low <= found.speedup.value <= found.speedup.high
    assert fake.asked == [len({site.key for site in net.sites})]


@pytest.mark.parametrize(("budget", "most"), [(2.0, 4), (1.0, 1)])
def test_a_small_budget_leaves_pairs_out(files: dict[str, Path], fake: FakeWorker, budget: float, most: int) -> None:
    net = net_of(files, "fashion_mobile")
    nodes = profile_of(net)
    small = probe(files["fashion_mobile"], "prune-50", feeds("fashion_mobile"), BENCH, budget, nodes)
    large = probe(files["fashion_mobile"], "prune-50", feeds("fashion_mobile"), BENCH, 60.0, nodes)
    assert fake.asked[0] <= most < fake.asked[1]
    assert small.covered_share < large.covered_share
    assert sum(fake.seconds[:2]) <= budget


def test_pairs_that_were_not_reached_change_nothing(files: dict[str, Path], fake: FakeWorker) -> None:
    nodes = profile_of(net_of(files, "digits_cnn"))
    fake.answered = 0
    found = probe(files["digits_cnn"], "prune-50", feeds("digits_cnn"), BENCH, nodes=nodes)
    assert (found.speedup, found.covered_share) == (None, 0.0)
    assert found.note.startswith("0 of ")


def test_a_profile_without_products_leaves_nothing_to_prune(files: dict[str, Path], fake: FakeWorker) -> None:
    nodes = [{"name": "other", "op": "Softmax", "time_ms": 1.0}]
    found = probe(files["digits_cnn"], "prune-50", feeds("digits_cnn"), BENCH, nodes=nodes)
    assert found.speedup is None
    assert "no node" in found.note
    assert fake.asked == []


def test_batches_are_compared_per_sample(files: dict[str, Path], fake: FakeWorker) -> None:
    found = probe(files["digits_cnn"], "batch-8", feeds("digits_cnn"), BENCH)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(8 / 8**0.5)


def test_every_second_of_equal_blocks_can_go(files: dict[str, Path]) -> None:
    net = net_of(files, "digits_encoder")
    nodes = [{"name": node.name, "op": node.op_type, "time_ms": 1.0} for node in net.model.graph.node]
    share = removable_share(files["digits_encoder"], feeds("digits_encoder"), nodes)
    inside = [node for node in net.model.graph.node if node.name.startswith("blocks.1")]
    assert share.blocks == 1
    assert share.value == pytest.approx(len(inside) / len(nodes))
    assert share.low < share.value


def test_a_net_without_repeated_blocks_cannot_be_halved(files: dict[str, Path]) -> None:
    found = probe(files["digits_cnn"], "half-depth", feeds("digits_cnn"), BENCH, nodes=[])
    assert found.speedup is None
    assert "no repeated blocks" in found.note


def test_graph_mode_is_the_ratio_of_what_was_measured() -> None:
    found = graph_mode([3.0] * 20, [1.5] * 12)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(2.0)
    assert found.as_dict()["speedup"]["n"] == 12


def test_layout_changes_around_a_lone_node_are_left_out() -> None:
    def event(name: str, op: str, dur: int) -> dict[str, Any]:
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": dur, "args": {"op_name": op}}

    events = [
        event("r", "ReorderInput", 50),
        event("c", "Conv", 10),
        event("r", "ReorderInput", 50),
        event("c", "Conv", 20),
    ]
    runs, nodes = _runs(events)
    assert runs == pytest.approx([0.0105, 0.0205])
    assert nodes == 1


def test_sites_are_equal_only_when_the_same_kernel_serves_them(files: dict[str, Path]) -> None:
    site = net_of(files, "fashion_mobile").sites[0]
    assert replace(site, name="other").key == site.key
    assert replace(site, tail=None).key != site.key


def test_the_real_worker_times_a_file_and_its_narrow_sites(files: dict[str, Path]) -> None:
    found = probe(files["digits_cnn"], "prune-50", feeds("digits_cnn"), BENCH, budget_seconds=3.0)
    assert found.speedup is not None
    assert 0 < found.covered_share <= 1
    assert 0 < found.speedup.low <= found.speedup.value <= found.speedup.high
