"""Clipping calibrators: the same whatever the batching, robust against outliers, in a fixed amount of memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_nets import node, normal, save, split_of

from compress.quantize.histogram import (
    BINS,
    METHODS,
    Histogram,
    clipped_range,
    collect,
    count_,
    is_stretched,
    percentile_range,
)
from compress.quantize.ranges import observe

finite = hnp.arrays(np.float32, st.integers(1, 400), elements=st.floats(-1e6, 1e6, width=32))


def histogram_of(values: np.ndarray) -> Histogram:
    """Of all values: a sample no longer than what is looked at per sample."""
    values = np.asarray(values, dtype=np.float32)
    values = values.reshape(-1, 1000 if values.size % 1000 == 0 else 1)
    counts = np.zeros(2 * BINS + 1, dtype=np.int64)
    count_(counts, values, float(np.abs(values).max()))
    return Histogram(low=float(values.min()), high=float(values.max()), counts=counts)


@settings(max_examples=60, deadline=None)
@given(finite, st.sampled_from(sorted(METHODS)))
def test_a_clipped_range_lies_within_the_extremes_and_holds_zero(values, method):
    found = histogram_of(values)
    low, high = clipped_range(found, method)
    assert min(0.0, found.low) <= low <= 0.0 <= high <= max(0.0, found.high)
    assert high > low or not values.any()


@settings(max_examples=30, deadline=None)
@given(finite)
def test_no_value_is_lost_and_every_bin_stands_for_its_values(values):
    found = histogram_of(values)
    assert found.counts.sum() == len(values)
    total = float((found.counts * found.centres).sum())
    # Bins are 1.1 % wide, and what is below 1e-10 of the largest counts as zero.
    assert total == pytest.approx(
        float(values.astype(np.float64).sum()), abs=0.012 * float(np.abs(values).sum()) + 1e-9
    )


@pytest.mark.parametrize("batching", [1, 5, 16, 50])
def test_histograms_do_not_depend_on_batching_and_a_ragged_last_batch_counts(tmp_path, batching, monkeypatch):
    import compress.quantize.histogram as module

    source = save(tmp_path / "m.onnx", [node("Relu", ["x"], "y")], {}, [5], [5])
    x = normal(0, 50, 5)
    extremes = {"x": (float(x.min()), float(x.max())), "y": (0.0, float(x.max()))}
    monkeypatch.setattr(module, "BATCH", batching)
    found = collect(source, split_of(x), extremes, lambda _done, _total: None)
    assert found["x"].counts.sum() == found["y"].counts.sum() == x.size
    assert (found["x"].counts == histogram_of(x).counts).all()


def test_percentile_and_entropy_leave_out_an_outlier_that_the_extremes_keep():
    values = normal(0, 400_000)
    values[7] = 1e6
    found = histogram_of(values)
    assert found.high == 1e6
    assert 3 < clipped_range(found, "percentile")[1] < 6
    assert 3 < clipped_range(found, "entropy")[1] < 10
    assert is_stretched(found)
    assert not is_stretched(histogram_of(normal(0, 1000)))


def test_mse_keeps_what_is_worth_keeping():
    # A uniform distribution has no tail to give up; one value in 400,000 at three times the rest has:
    # keeping it costs 400,000 (19.5 / 255)^2 / 12 = 195, cutting it off at 5 costs 100.
    assert clipped_range(histogram_of(np.linspace(-1, 3, 10_000)), "mse")[1] == pytest.approx(3, rel=0.05)
    values = normal(0, 400_000)
    values[7] = 15
    assert clipped_range(histogram_of(values), "mse")[1] < 10


def test_mse_is_no_worse_than_the_whole_range_when_codes_are_really_made():
    for seed, draw in enumerate((np.random.default_rng(0).laplace, np.random.default_rng(1).standard_normal)):
        values = draw(size=200_000)
        found = histogram_of(values)
        whole, clipped = (error_of(values, *ends) for ends in ((found.low, found.high), clipped_range(found, "mse")))
        assert clipped < whole, seed


def error_of(values: np.ndarray, low: float, high: float) -> float:
    step = (high - low) / 255
    zero = np.round(-low / step)
    codes = np.clip(np.round(values / step) + zero, 0, 255)
    return float((((codes - zero) * step - values) ** 2).mean())


def test_percentiles_are_those_of_the_sorted_values():
    values = np.random.default_rng(3).standard_normal(500_000)
    low, high = percentile_range(histogram_of(values))
    # Neighbouring bins are 1.1 % apart.
    assert (low, high) == pytest.approx(np.quantile(values, [0.00005, 0.99995]), rel=0.015)


def test_constant_and_all_zero_tensors_get_a_range(tmp_path):
    assert clipped_range(histogram_of(np.zeros(10)), "mse") == (0.0, 0.0)
    for method in METHODS:
        low, high = clipped_range(histogram_of(np.full(10, 2.5)), method)
        assert low == 0.0
        assert high == pytest.approx(2.5, rel=0.02)


MEMORY = """
import sys, resource
from pathlib import Path
sys.path.insert(0, {tests!r})
import numpy as np
from made_nets import node, normal, save
from compress.data import Split
import compress.data
compress.data.SINGLE_INPUT = "x"
from compress.quantize.histogram import collect
from compress.quantize.ranges import observe

class Made:
    def __init__(self, samples): self.samples = samples
    def __len__(self): return self.samples
    def __getitem__(self, i): return np.random.default_rng(i).uniform(0, 1, (16, 24, 24)).astype(np.float32), 0

weights = {{"w": normal(0, 16, 16, 3, 3)}}
conv = node("Conv", ["x", "w"], "y")
source = save(Path({folder!r}) / "m.onnx", [conv], weights, [16, 24, 24], [16, 22, 22])
peaks = []
for samples in (64, 200, 2000):
    split = Split("calibration", Made(samples), np.arange(samples))
    known = observe(source, split, ["Conv"], lambda *_: None)
    collect(source, split, known.extremes, lambda *_: None)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1], peaks[2])
"""


def test_memory_of_histograms_does_not_grow_with_the_number_of_samples(tmp_path):
    script = MEMORY.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    assert many <= 1.1 * few


def test_a_tensor_that_never_holds_a_value_is_told_apart_from_one_that_overflows(tmp_path):
    values = {"w": normal(0, 4, 4), "from": np.array([0]), "to": np.array([0]), "axis": np.array([1])}
    nodes = [
        node("Slice", ["x", "from", "to", "axis"], "none"),
        node("MatMul", ["x", "w"], "a"),
        node("Concat", ["a", "none"], "y", axis=1),
    ]
    source = save(tmp_path / "m.onnx", nodes, values, [4], [4])
    found = observe(source, split_of(normal(1, 8, 4)), ["MatMul", "Concat"], lambda _done, _total: None)
    assert found.unseen == ("none",)
    assert "a" in found.extremes
