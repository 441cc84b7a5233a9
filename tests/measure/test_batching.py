"""Whether a file's outputs depend on batch-mates: static files do not, dynamic ones do."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compress.data import Split
from compress.measure.accuracy import Runner
from compress.measure.batching import batch_variance


def split_of(x: np.ndarray) -> Split:
    return Split("select", ({"x": x}, np.zeros(len(x))), np.arange(len(x)))


def save(path, nodes, values, width):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", width])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def runner(batch: int) -> Runner:
    return Runner(provider="cpu", threads=1, batch=batch)


def test_a_product_does_not_depend_on_batch_mates(tmp_path):
    x = np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    path = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, 8)
    value, n = batch_variance(path, split_of(x), runner(8))
    assert value < 1e-5
    assert n == 20


@pytest.mark.parametrize("batch", [2, 3, 8, 50])
def test_what_the_largest_sample_does_to_the_others_is_measured_exactly(tmp_path, batch):
    # y = x + the largest value of the whole batch
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Add", ["x", "top"], ["y"]),
    ]
    x = np.ones((4, 2), np.float32)
    x[2] = 3
    path = save(tmp_path / "m.onnx", nodes, {}, 2)
    value, n = batch_variance(path, split_of(x), runner(batch))
    # A sample of ones gives 2 alone and 4 beside the sample of threes; batches of two put 0 with 1 and 2 with 3.
    assert value == pytest.approx(1.0)
    assert n == 4


def test_a_batch_of_one_changes_nothing(tmp_path):
    nodes = [helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0), helper.make_node("Add", ["x", "top"], ["y"])]
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    assert batch_variance(save(tmp_path / "m.onnx", nodes, {}, 2), split_of(x), runner(1))[0] == 0.0
