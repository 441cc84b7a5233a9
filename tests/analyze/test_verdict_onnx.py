"""Verdicts on ONNX graphs: nodes fuse, and products between dequantized operands run in integers."""

import made
import onnx
import pytest
from onnx import TensorProto, helper

from compress.analyze.costs import costs_of
from compress.analyze.onnx_table import table_from_onnx
from compress.analyze.predict import predict
from compress.analyze.rates import working_types
from compress.analyze.verdict import verdict


def _weight(name, shape, kind=TensorProto.FLOAT):
    count = 1
    for size in shape:
        count *= size
    return helper.make_tensor(name, kind, shape, [0] * count)


def _model(nodes, weights, shape, out):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        weights,
    )
    return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def _chain():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Transpose", ["b"], ["y"], name="turn", perm=[1, 0]),
    ]
    return table_from_onnx(_model(nodes, [_weight("w", [64, 64])], [32, 64], [64, 32]))


def _quantized():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dq"),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], name="dw"),
        helper.make_node("MatMul", ["d", "v"], ["y"], name="product"),
    ]
    weights = [_weight("w", [64, 64], TensorProto.INT8), _weight("s", []), _weight("z", [], TensorProto.INT8)]
    return table_from_onnx(_model(nodes, weights, [32, 64], [32, 64]))


def test_a_fused_node_is_started_once_and_only_heavy_nodes_are_sure_to_start():
    ops = costs_of(_chain(), made.machine(), "onnxruntime").ops
    assert [op.floor_ns for op in ops] == [1500.0, 0.0, 1500.0]
    assert [op.hard_floor_ns for op in ops] == [1500.0, 0.0, 0.0]


def test_an_onnx_graph_is_judged_with_the_bytes_of_fused_groups():
    found = verdict(_chain(), made.machine())
    assert (found.shares.runtime, found.shares.level) == ("onnxruntime", "G")
    assert found.shares.costs.ops[1].total_bytes("G") == 32 * 64 * 4


def test_a_fused_op_that_a_profile_still_shows_is_about_activations():
    # Neither started nor charged with bytes of its own.
    rows = [{"name": "product", "time_ms": 0.001}, {"name": "relu", "time_ms": 0.0008}]
    found = verdict(_chain(), made.machine(), measured=made.measured(0.0018, rows, runtime="onnxruntime"))
    assert found.shares.rows[1].class_ == "activation-bandwidth"


def test_a_graph_already_is_one():
    found = verdict(_chain(), made.machine())
    row = next(row for row in predict(_chain(), made.machine(), found) if row.name == "graph mode")
    assert (row.expected, row.helps) == (1.0, "warn")
    assert "already" in row.why


def test_a_product_between_dequantized_operands_counts_as_integers():
    table = _quantized()
    assert working_types(table.ops)[-1] == "int8"
    product = table.ops[-1]
    found = verdict(table, made.machine(starts=0, cache=None))
    assert found.shares.rows[-1].bound.compute_ms == pytest.approx(product.flops / 140e9 * 1e3)


def test_conversions_between_float_and_integer_are_movement():
    table = _quantized()
    rows = [{"name": "q", "time_ms": 3.0}, {"name": "dq", "time_ms": 3.0}, {"name": "product", "time_ms": 0.1}]
    found = verdict(table, made.machine(), measured=made.measured(6.1, rows, runtime="onnxruntime"))
    assert found.class_ == "movement"
    assert found.share > 0.9
