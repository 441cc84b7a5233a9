"""Kernels of a profile belong to nodes of the file, and the profiler's own cost belongs to nobody."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compress.analyze.file_nodes import on_file_nodes
from compress.analyze.methods import Asked
from compress.device.devices import device_named
from compress.errors import InputError
from compress.measure.isolated import Bench, profile
from compress.measure.stats import Interval
from compress.stages.ptq_files import linear_share
from compress.stages.verdict import Timed, elasticity_of, judge_file, undisturbed, without_profiler


def net(path):
    """conv -> relu -> transpose -> matmul, named as an exporter would."""
    rng = np.random.default_rng(0)
    values = {"w": rng.standard_normal((8, 8, 3, 3)), "m": rng.standard_normal((16, 4))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["stem/Conv"], name="stem/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["stem/Conv"], ["stem/Relu"], name="stem/Relu"),
        helper.make_node("Transpose", ["stem/Relu"], ["t"], name="Transpose", perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["t", "m"], ["y"], name="head/MatMul"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 8, 16, 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 16, 8, 4])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def test_fused_kernels_go_to_the_node_that_does_their_work(tmp_path):
    path = net(tmp_path / "m.onnx")
    kernels = profile(path, {"x": np.ones((1, 8, 16, 16), np.float32)}, Bench(provider="cpu", threads=1), runs=3)
    rows = on_file_nodes(path, kernels)
    named = [row["name"] for row in rows if str(row["op"]).startswith("onnx::")]
    assert named == ["stem/Conv", "Transpose", "head/MatMul"]
    assert sum(row["time_ms"] for row in rows) == pytest.approx(sum(kernel["time_ms"] for kernel in kernels))


def test_kernels_of_one_node_add_up_and_strangers_keep_their_names(tmp_path):
    kernels = [
        {"name": "stem/Relu_nchwc", "op": "Conv", "time_ms": 3.0},
        {"name": "stem/Conv_part", "op": "Conv", "time_ms": 1.0},
        {"name": "ReorderOutput_token_1", "op": "ReorderOutput", "time_ms": 0.5},
        {"name": "unheard of", "op": "Magic", "time_ms": 0.25},
    ]
    rows = {row["name"]: row["time_ms"] for row in on_file_nodes(net(tmp_path / "m.onnx"), kernels)}
    assert rows == {"stem/Conv": 4.0, "ReorderOutput_token_1": 0.5, "unheard of": 0.25}


def test_a_product_fused_with_its_activation_is_still_the_product_of_the_file(tmp_path):
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["0/Gemm"], name="0/Gemm"),
        helper.make_node("Relu", ["0/Gemm"], ["y"], name="1/Relu"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 64])],
        [numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")],
    )  # fmt: skip
    path = tmp_path / "g.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    kernels = profile(path, {"x": np.ones((1, 64), np.float32)}, Bench(provider="cpu", threads=1), runs=3)
    rows = on_file_nodes(path, kernels)
    assert [(row["name"], row["op"]) for row in rows] == [("0/Gemm", "onnx::Gemm")]


def test_a_kernel_under_a_name_of_its_own_goes_to_a_node_that_does_the_same_and_has_no_time(tmp_path):
    kernels = [
        {"name": "stem/Conv", "op": "Conv", "time_ms": 3.0},
        {"name": "made up", "op": "MatMul", "time_ms": 1.0},
        {"name": "made up too", "op": "MatMul", "time_ms": 0.5},
    ]
    rows = {row["name"]: row["time_ms"] for row in on_file_nodes(net(tmp_path / "m.onnx"), kernels)}
    assert rows == {"stem/Conv": 3.0, "head/MatMul": 1.0, "made up too": 0.5}


def test_times_without_the_profiler_sum_to_the_pass_and_keep_their_order():
    rows = [{"name": str(i), "time_ms": time} for i, time in enumerate([9.0, 8.5, 8.2, 30.0])]
    left = [row["time_ms"] for row in without_profiler(rows, 20.0)]
    assert sum(left) == pytest.approx(20.0)
    assert sorted(range(4), key=left.__getitem__) == [2, 1, 0, 3]
    assert min(left) > 0


def test_a_profile_within_the_pass_is_left_alone():
    rows = [{"name": "a", "time_ms": 1.0}, {"name": "b", "time_ms": 2.0}]
    assert without_profiler(rows, 3.5) == rows
    assert without_profiler([], 1.0) == []


def test_the_share_of_matrix_products_is_that_of_the_multiply_accumulates(tmp_path):
    conv, product = 8 * 8 * 9 * 256, 8 * 16 * 16 * 4
    assert linear_share(net(tmp_path / "m.onnx")) == pytest.approx(product / (conv + product))


def test_times_that_were_corrected_for_the_profiler_break_no_bound_of_one_op(tmp_path):
    path = net(tmp_path / "m.onnx")
    ceilings = device_named("t4")
    shapes = {"x": (1, 8, 16, 16)}
    # One kernel far below what arithmetic allows, in a pass that is long enough as a whole.
    kernels = [
        {"name": "stem/Conv_nchwc", "op": "Conv", "time_ms": 1e-9},
        {"name": "Transpose", "op": "Transpose", "time_ms": 5.0},
    ]
    long, short = (Interval(value=ms, low=ms, high=ms, n=9) for ms in (6.0, 4.0))
    whole = Timed(end_to_end_ms=long, kernels=kernels, batch=1)
    corrected = Timed(end_to_end_ms=short, kernels=kernels, batch=1)
    assert [error.place for error in judge_file(path, whole, ceilings, Asked(), shapes).verdict.errors] == [
        "op 0 stem/Conv"
    ]
    assert judge_file(path, corrected, ceilings, Asked(), shapes).verdict.errors == ()


def test_a_file_of_one_batch_size_has_no_elasticity_and_any_other_has_one(tmp_path):
    free = net(tmp_path / "free.onnx")
    fixed = onnx.load(str(free))
    for value in (*fixed.graph.input, *fixed.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(fixed, str(tmp_path / "fixed.onnx"))
    feeds, bench = {"x": np.ones((1, 8, 16, 16), np.float32)}, Bench(provider="cpu", threads=1)
    assert elasticity_of(tmp_path / "fixed.onnx", feeds, bench, seconds=0.1) is None
    assert elasticity_of(free, feeds, bench, seconds=0.1) > -1


def test_the_median_stands_for_a_pass_on_a_quiet_machine_and_the_fast_tenth_on_a_busy_one():
    rng = np.random.default_rng(0)
    quiet = rng.normal(1.0, 0.02, 500)
    whole, note = undisturbed(quiet)
    assert (whole.value, note) == (pytest.approx(np.median(quiet)), "")
    busy = quiet + rng.choice([0.0, 4.0], 500, p=[0.4, 0.6])
    whole, note = undisturbed(busy)
    assert whole.low <= 1.0 <= whole.high * 1.05
    assert whole.value == pytest.approx(1.0, rel=0.05)
    assert "busy" in note
    with pytest.raises(InputError, match="only 3 calls"):
        undisturbed([1.0, 1.0, 1.0])
