"""Measuring ceilings: a tiny run holds what a full one holds. No speed is asserted: the machine is shared."""

import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compress.device.ceilings import MEASURED, Ceilings
from compress.device.facts import fingerprint
from compress.errors import EnvironmentProblem
from compress.measure.ceilings import Effort, ask, graphs, measure_ceilings
from compress.measure.ceilings.bandwidth import INSIDE, working_sets
from compress.measure.ceilings.parts import Part, Product
from compress.measure.ceilings.stopwatch import Stopwatch, Trial

TINY = Effort(repeats=2, repeat_seconds=0.001, call_seconds=0.02, sizes=(64, 128), largest_bytes=1 << 20)
CACHES = {"l1": 32 << 10, "l2": 512 << 10, "l3": 32 << 20}


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return []


@pytest.fixture(scope="module")
def measured(steps: list[str]) -> Ceilings:
    return measure_ceilings(1, steps.append, TINY)


def test_a_measurement_says_what_where_and_when(measured: Ceilings):
    assert (measured.source, measured.threads, measured.fingerprint) == (MEASURED, 1, fingerprint())
    assert measured.date is not None
    assert "torch" in measured.versions
    assert (measured.achievable.gemm, measured.achievable.bandwidth) == (1.0, 1.0)


def test_floats_and_integers_are_measured_as_products_and_convolutions(measured: Ceilings):
    for dtype in ("fp32", "int8"):
        rate = measured.flop_per_s[dtype]
        assert rate.gemm is not None
        assert rate.conv is not None
    assert measured.ratio("int8") is not None


def test_half_precisions_are_measured_or_refused_and_marked(measured: Ceilings):
    for dtype in ("bf16", "fp16"):
        rate, fp32 = measured.flop_per_s[dtype], measured.peak("fp32")
        assert fp32 is not None
        assert rate.supported == (rate.best is not None)
        assert rate.best is None or rate.slower_than_fp32 == (rate.best.value < fp32)


def test_every_figure_is_positive_and_comes_with_n_and_spread(measured: Ceilings):
    rates = [one for rate in measured.flop_per_s.values() for one in (rate.gemm, rate.conv) if one]
    levels = [one for level in measured.levels for one in level.bytes_per_s.values()]
    costs = [*measured.dispatch_ns.values(), *measured.moves_bytes_per_s.values(), measured.node_ns]
    for figure in (*rates, *levels, *costs):
        assert figure is not None
        assert figure.value > 0
        assert figure.how
        assert figure.n == TINY.repeats
        assert figure.spread is not None
        assert figure.spread >= 0
        assert figure.wall_over_cpu is not None
        assert figure.wall_over_cpu >= 1


def test_every_class_of_operator_has_its_cost(measured: Ceilings):
    classes = {"view", "add", "cat", "layer_norm", "bmm", "sdpa", "linear", "conv"}
    assert measured.dispatch_ns.keys() == classes
    assert {"copy", "transpose"} < measured.moves_bytes_per_s.keys()


def test_contention_is_recorded_and_decides_the_mark(measured: Ceilings):
    assert measured.contention is not None
    assert measured.contention.wall_over_cpu is not None
    assert measured.contaminated == (measured.contention.wall_over_cpu > 1.15)


def test_a_measurement_survives_json(measured: Ceilings):
    assert Ceilings.from_dict(measured.as_dict()) == measured


def test_the_listener_hears_each_step(measured: Ceilings, steps: list[str]):
    assert "ONNX Runtime QLinearConv" in steps
    assert "memory bandwidth" in steps


def test_a_crash_of_the_measuring_process_is_an_environment_problem():
    request = {"part": "nothing", "threads": 1, "effort": {}}
    with pytest.raises(EnvironmentProblem, match=r"ceilings of nothing: .*ended with status 1 \(KeyError"):
        ask._ask(request, print)


def run(model: object, tmp_path: Path) -> np.ndarray:
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, graphs.feed_for(model))[0]


def values(model: object) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    return {one.name: numpy_helper.to_array(one).astype(np.float64) for one in model.graph.initializer}


def test_the_integer_graph_computes_the_product_it_is_counted_as(tmp_path: Path):
    model = graphs.integer_product(32)
    given, x = values(model), graphs.feed_for(model)["x"].astype(np.float64)
    exact = (x - 128) * given["one"] @ (given["w"] * given["ws"])
    expected = np.clip(np.rint(exact / given["one"]) + 128, 0, 255)
    assert np.abs(run(model, tmp_path) - expected).max() <= 1  # ties can round either way in float32


def test_the_dynamic_graph_computes_the_product_it_is_counted_as(tmp_path: Path):
    model = graphs.dynamic_product(32)
    given, x = values(model), graphs.feed_for(model)["x"].astype(np.float64)
    exact = x @ (given["w"] * given["ws"])
    # x is rounded to 1/255 of its range: at most half a step per product, 32 products of weights up to 0.64.
    step = (x.max() - x.min()) / 255
    assert np.abs(run(model, tmp_path) - exact).max() <= 32 * 0.64 * step / 2 + 1e-4


@pytest.mark.parametrize("build", [graphs.float_conv, graphs.integer_conv])
def test_convolutions_keep_the_side(build, tmp_path: Path):
    assert run(build(8, 5), tmp_path).shape == (1, 8, 5, 5)


def test_a_chain_adds_as_often_as_it_is_long(tmp_path: Path):
    model = graphs.chain(7)
    assert len(model.graph.node) == 7
    assert run(model, tmp_path) == pytest.approx(graphs.feed_for(model)["x"] + 7)


def test_a_sleep_is_timed_as_waiting_not_as_work():
    watch = Stopwatch(threads=1, effort=Effort(repeats=2, repeat_seconds=0.005))
    sample = watch.time(lambda: time.sleep(0.002))
    assert sample.wall_over_cpu > 1.15
    assert sample.seconds < 0.002


def test_pools_are_timed_by_the_clock():
    watch = Stopwatch(threads=2, effort=Effort(repeats=2, repeat_seconds=0.005))
    assert watch.time(lambda: time.sleep(0.002)).seconds >= 0.002


def test_the_best_trial_wins_and_long_calls_are_not_made():
    watch = Stopwatch(threads=2, effort=Effort(repeats=1, repeat_seconds=0.001, call_seconds=0.5))

    def trial(how: str, work: float, seconds: float) -> Trial:
        return Trial(how=how, work=work, make=lambda: lambda: time.sleep(seconds))

    def unmade() -> object:
        raise AssertionError("this call would take a minute")

    trials = [trial("slow", 1.0, 0.02), trial("fast", 10.0, 0.02), Trial(how="long", work=3e4, make=unmade)]
    best = watch.best(trials)
    assert best is not None
    assert best.how == "fast"


def test_working_sets_reach_eight_times_the_last_cache_and_live_where_they_are_said_to():
    found = working_sets(CACHES, 1 << 40)
    assert found[0][1] == 16 << 10
    assert found[-1] == ("dram", 8 * CACHES["l3"])
    assert {level for level, _ in found} == {"l1", "l2", "l3", "dram"}
    assert all(size <= INSIDE * CACHES[level] for level, size in found if level != "dram")
    assert all(size >= 2 * CACHES["l3"] for level, size in found if level == "dram")


def test_a_sweep_cut_short_stays_under_its_limit():
    found = working_sets(CACHES, 1 << 20)
    assert max(size for _, size in found) <= 1 << 20


@pytest.mark.parametrize("shared", [32 << 20, 300 << 20, 1152 << 20, 8 << 30])
@pytest.mark.parametrize("largest", [1, 16 << 10, 1 << 20, 512 << 20, 1 << 30, 1 << 40])
def test_memory_has_a_figure_whatever_the_cache_and_the_limit(shared, largest):
    found = working_sets({"l1": 48 << 10, "l2": 2 << 20, "l3": shared}, largest)
    assert [level for level, _ in found].count("dram") >= 1
    assert found[-1][0] == "dram"
    assert found[-1][1] == max(size for _, size in found)


def test_the_faster_library_sets_the_ceiling():
    def product(dtype: str, kind: str, value: float) -> Product:
        sample = Stopwatch(threads=1, effort=TINY).time(lambda: None)
        return Product(dtype=dtype, kind=kind, figure=sample.figure(value, f"{dtype} at {value}"))

    one = Part(products=[product("fp32", "gemm", 5.0), product("int8", "conv", 9.0)], wall_s=1.3, busy_s=1.0)
    two = Part(
        products=[product("fp32", "gemm", 7.0), product("bf16", "gemm", 6.0)], refused={"fp16": "no"}, busy_s=0.1
    )
    found = ask._together([one, two], 1, {})
    assert {dtype: found.peak(dtype) for dtype in found.flop_per_s} == {
        "fp32": 7.0,
        "int8": 9.0,
        "bf16": 6.0,
        "fp16": None,
    }
    assert [dtype for dtype, rate in found.flop_per_s.items() if rate.slower_than_fp32] == ["bf16"]
    assert found.contaminated
