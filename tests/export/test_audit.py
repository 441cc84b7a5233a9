"""The audit counts what runs, in the graph the runtime made, not what a file promises."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from compress.device.runtime import open_session
from compress.export.audit import audit_graph


def conv_model(quantized: str | None) -> onnx.ModelProto:
    """Two convolutions; quantized: None, or the activation type of Q/DQ pairs around every tensor."""
    rng = np.random.default_rng(0)
    nodes, values = [], []
    current = "x"
    for i in range(2):
        weight = rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
        if quantized:
            zero = np.array(0, np.int8) if quantized == "s8" else np.array(128, np.uint8)
            values += [
                numpy_helper.from_array(np.array(0.05, np.float32), f"s{i}"),
                numpy_helper.from_array(zero, f"z{i}"),
                numpy_helper.from_array(np.clip(weight * 40, -63, 63).astype(np.int8), f"w{i}"),
                numpy_helper.from_array(np.array(0.025, np.float32), f"ws{i}"),
                numpy_helper.from_array(np.array(0, np.int8), f"wz{i}"),
            ]
            nodes += [
                helper.make_node("QuantizeLinear", [current, f"s{i}", f"z{i}"], [f"q{i}"]),
                helper.make_node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"d{i}"]),
                helper.make_node("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"wd{i}"]),
                helper.make_node("Conv", [f"d{i}", f"wd{i}"], [f"c{i}"], pads=[1, 1, 1, 1]),
            ]
        else:
            values.append(numpy_helper.from_array(weight, f"w{i}"))
            nodes.append(helper.make_node("Conv", [current, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        current = f"c{i}"
    if quantized:
        nodes += [
            helper.make_node("QuantizeLinear", [current, "s0", "z0"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s0", "z0"], ["y"]),
        ]
    else:
        nodes.append(helper.make_node("Relu", [current], ["y"]))
    shape = ["batch", 8, 10, 10]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def audited(proto: onnx.ModelProto, tmp_path, requested: str = "cpu") -> dict:
    onnx.save(proto, str(tmp_path / "m.onnx"))
    session = open_session(tmp_path / "m.onnx", optimised_path=tmp_path / "o.onnx")
    return audit_graph(tmp_path / "o.onnx", session.get_providers(), requested)


def test_a_float_file_has_no_integer_kernel(tmp_path):
    audit = audited(conv_model(None), tmp_path)
    assert (audit["integer_ops"], audit["float_ops"], audit["accelerated"]) == (0, 2, False)
    assert audit["note"].startswith("not accelerated: none of 2")


def test_unsigned_activations_become_integer_convolutions(tmp_path):
    audit = audited(conv_model("u8"), tmp_path)
    assert audit["by_op"]["QLinearConv"] == 2
    assert (audit["float_ops"], audit["accelerated"]) == (0, True)
    assert audit["boundary_ops"] >= 2


def test_counts_are_those_of_the_optimised_graph_whatever_the_file_says(tmp_path):
    audit = audited(conv_model("s8"), tmp_path)
    nodes = [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]
    assert audit["integer_ops"] == nodes.count("QLinearConv")
    assert sum(audit["by_op"].values()) == len(nodes)


def test_another_provider_than_asked_for_is_a_fallback(tmp_path):
    assert audited(conv_model(None), tmp_path, "cuda")["provider_fallbacks"] == ["CPUExecutionProvider"]
    assert audited(conv_model(None), tmp_path, "cpu")["provider_fallbacks"] == []


def test_the_runtime_is_there():
    assert "CPUExecutionProvider" in onnxruntime.get_available_providers()
