"""Probes of methods that rewrite the file: the real graph with other kernels, timed whole beside the float file."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compress.data import Split
from compress.device.runtime import open_session
from compress.export.onnx import export_onnx
from compress.measure import isolated
from compress.probe.methods import METHODS
from compress.probe.probe import ProbeResult, probe
from compress.probe.rewritten import SCHEME_OF, rewrite
from compress.quantize.ort import CONV_OP_TYPES, quantize_static
from compress.quantize.ranges import calibrate
from compress.zoo import nets

BENCH = isolated.Bench(provider="cpu", threads=1)
RNG = np.random.default_rng(0)
IMAGES = {"input": RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)}
WIDE, SAMPLES = 64, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rewritten")
    for name in ("digits_cnn", "digits_encoder"):
        export_onnx(getattr(nets, name)(), IMAGES, folder / f"{name}.onnx", ["output"])
    return folder


def one_op(path: Path, op: str, weights: dict[str, Any], samples: int | str, **attributes: Any) -> Path:
    """A file with a single operator on (samples, WIDE)."""
    node = helper.make_node(op, ["input", *weights], ["output"], name="only", **attributes)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [samples, WIDE]) for n in ("input", "output")]
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def kernels(path: Path, scratch: Path) -> Counter[str]:
    """Operators that the runtime really runs."""
    open_session(path, optimised_path=scratch / "optimised.onnx")
    return Counter(node.op_type for node in onnx.load(scratch / "optimised.onnx").graph.node)


def run(path: Path, feeds: dict[str, Any]) -> Any:
    return open_session(path).run(None, feeds)[0]


def test_made_up_ranges_choose_the_same_kernels_as_real_ones(folder: Path, tmp_path: Path) -> None:
    source = folder / "digits_cnn.onnx"
    real = {"input": RNG.random((64, 1, 8, 8)).astype(np.float32)}
    split = Split("calibration", (real, np.zeros(64)), np.arange(64))
    ranges = calibrate(source, split, CONV_OP_TYPES)
    quantize_static(source, tmp_path / "real.onnx", SCHEME_OF["static"], ranges, CONV_OP_TYPES, [])
    rewrite(source, tmp_path / "probe.onnx", METHODS["int8"], IMAGES)
    found = kernels(tmp_path / "probe.onnx", tmp_path)
    assert found == kernels(tmp_path / "real.onnx", tmp_path)
    assert found["QLinearConv"] >= 4
    assert found["Conv"] == 0


def test_masks_of_attention_stay_in_float(folder: Path, tmp_path: Path) -> None:
    source = folder / "digits_encoder.onnx"
    rewrite(source, tmp_path / "probe.onnx", METHODS["int8"], IMAGES)
    reference, found = run(source, IMAGES), run(tmp_path / "probe.onnx", IMAGES)
    # A quantized mask of -3e38 would leave nothing of the scores; 8 bits over the true ranges leave most.
    assert np.abs(found - reference).max() < 0.25 * np.abs(reference).max()


@pytest.mark.parametrize(
    ("method", "kernel", "allowed"),
    [("dynamic-int8", "DynamicQuantizeMatMul", 0.05), ("weights-int8", "MatMulNBits", 0.03),
     ("weights-int4", "MatMulNBits", 0.3)],
)  # fmt: skip
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_products_get_the_kernel_of_the_method_and_keep_their_value(
    op: str, method: str, kernel: str, allowed: float, tmp_path: Path
) -> None:
    weights = {"w": RNG.standard_normal((WIDE, WIDE)).astype(np.float32) / 8}
    weights |= {"b": RNG.standard_normal(WIDE).astype(np.float32)} if op == "Gemm" else {}
    attributes = {"transB": 1} if op == "Gemm" else {}
    source = one_op(tmp_path / "source.onnx", op, weights, "n", **attributes)
    feeds = {"input": RNG.standard_normal((4, WIDE)).astype(np.float32)}
    rewrite(source, tmp_path / "probe.onnx", METHODS[method], feeds)
    assert kernels(tmp_path / "probe.onnx", tmp_path)[kernel] == 1
    right = weights["w"].T if op == "Gemm" else weights["w"]
    reference = feeds["input"].astype(np.float64) @ right + weights.get("b", np.zeros(WIDE))
    assert np.abs(run(tmp_path / "probe.onnx", feeds) - reference).max() < allowed * np.abs(reference).max()


def test_a_file_of_a_fixed_batch_can_be_probed(tmp_path: Path) -> None:
    weights = {"w": RNG.standard_normal((WIDE, WIDE)).astype(np.float32)}
    source = one_op(tmp_path / "fixed.onnx", "MatMul", weights, SAMPLES)
    feeds = {"input": RNG.standard_normal((SAMPLES, WIDE)).astype(np.float32)}
    rewrite(source, tmp_path / "probe.onnx", METHODS["int8"], feeds)
    assert run(tmp_path / "probe.onnx", feeds).shape == (SAMPLES, WIDE)


@pytest.mark.parametrize("method", ["int8", "dynamic-int8", "weights-int4"])
def test_a_file_without_a_place_for_the_method_says_so_and_is_not_timed(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(isolated, "time_in_turns")
    source = one_op(tmp_path / "source.onnx", "Softmax", {}, "n")
    feeds = {"input": RNG.standard_normal((4, WIDE)).astype(np.float32)}
    found = probe(source, method, feeds, BENCH, nodes=[])
    assert (found.speedup, found.covered_share) == (None, 0.0)
    assert "no node" in found.note or "no operator" in found.note


def test_activations_that_overflow_are_reported_and_not_timed(tmp_path: Path) -> None:
    weights = {"w": np.full((WIDE, WIDE), 3e38, np.float32)}
    source = one_op(tmp_path / "source.onnx", "MatMul", weights, "n")
    found = probe(source, "int8", {"input": np.full((2, WIDE), 10, np.float32)}, BENCH, nodes=[])
    assert found.speedup is None
    assert "inf" in found.note


def probed_in(worker_ms: tuple[float, float], monkeypatch: pytest.MonkeyPatch, source: Path) -> ProbeResult:
    def time_in_turns(a: Path, b: Path, *_rest: Any) -> dict[str, Any]:
        assert (a, b.exists()) == (source, True)
        value = worker_ms[0] / worker_ms[1]
        return {"ratio": {"value": value, "low": value, "high": value, "n": 12}}

    monkeypatch.setattr(isolated, "time_in_turns", time_in_turns)
    return probe(source, "int8", IMAGES, BENCH, 1.0, nodes=[])


def test_the_figure_is_that_of_the_whole_file_and_no_narrower_than_probes_repeat(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = probed_in((3.0, 2.0), monkeypatch, folder / "digits_cnn.onnx")
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(1.5)
    assert (found.speedup.low, found.speedup.high) == (pytest.approx(1.5 / 1.03), pytest.approx(1.5 * 1.03))
    assert found.covered_share == 1.0


def test_the_real_worker_finds_a_file_as_fast_as_itself_and_more_samples_slower(folder: Path) -> None:
    source = folder / "digits_cnn.onnx"
    alike = isolated.time_in_turns(source, source, IMAGES, BENCH, 0.5)["ratio"]
    many = isolated.time_in_turns(source, source, IMAGES, BENCH, 0.5, (1, 64))["ratio"]
    # Only far apart enough to tell 1 from 64 samples on a busy machine.
    assert 0.5 < alike["value"] < 2.0
    assert many["value"] < 0.5
    assert many["n"] >= 4
