"""Small ONNX files made by hand, and how they are run."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from compress.data import Split

Arrays = dict[str, np.ndarray]


def save(path: Path, nodes: list, values: Arrays, shape_in: list, shape_out: list) -> Path:
    """x (batch, *shape_in) to y (batch, *shape_out); nodes are named n0/Op, n1/Op, ..."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", *shape_in])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", *shape_out])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    for i, node in enumerate(graph.node):
        node.name = f"n{i}/{node.op_type}"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def node(op: str, inputs: list[str], output: str, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


def run(path: Path, x: np.ndarray, *, optimise: bool = True) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def split_of(x: np.ndarray, name: str = "x") -> Split:
    return Split("calibration", ({name: x}, np.zeros(len(x))), np.arange(len(x)))


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def relative_change(before: np.ndarray, after: np.ndarray) -> float:
    return float(np.abs(before - after).max() / max(float(np.abs(before).max()), 1e-30))


def sqnr(reference: np.ndarray, other: np.ndarray) -> float:
    reference, other = reference.astype(np.float64), other.astype(np.float64)
    return float(10 * np.log10((reference**2).sum() / max(((reference - other) ** 2).sum(), 1e-300)))


def bottleneck(path: Path, seed: int, factors: np.ndarray, activation: str = "Relu", channels: int = 6) -> Path:
    """1x1 convolution, depthwise 3x3, 1x1 convolution with an activation between each; channels scaled by `factors`."""
    values = {
        "w1": normal(seed, channels, 3, 1, 1) / factors[:channels, None, None, None],
        "b1": normal(seed + 1, channels) / factors[:channels],
        "w2": normal(seed + 2, channels, 1, 3, 3)
        * factors[:channels, None, None, None]
        / factors[channels:, None, None, None],
        "b2": normal(seed + 3, channels) / factors[channels:],
        "w3": normal(seed + 4, 4, channels, 1, 1) * factors[None, channels:, None, None],
    }
    ends = ["zero", "six"] if activation == "Clip" else []
    values |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)} if ends else {}
    nodes = [
        node("Conv", ["x", "w1", "b1"], "a"),
        node(activation, ["a", *ends], "b"),
        node("Conv", ["b", "w2", "b2"], "c", group=channels, pads=[1, 1, 1, 1]),
        node(activation, ["c", *ends], "d"),
        node("Conv", ["d", "w3"], "y"),
    ]
    return save(path, nodes, {name: value.astype(np.float32) for name, value in values.items()}, [3, 8, 8], [4, 8, 8])
