"""An ONNX graph to look things up in, its layers with constant weights, and runs that show its insides."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.data import Array, Split
from compress.device.runtime import open_session
from compress.files import write_with

if TYPE_CHECKING:
    import onnx

HEAVY_OP_TYPES = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Graph:
    """Look-ups over one model; made anew after the graph was changed."""

    proto: "onnx.ModelProto"

    @cached_property
    def producers(self) -> "dict[str, onnx.NodeProto]":
        return {value: node for node in self.proto.graph.node for value in node.output}

    @cached_property
    def consumers(self) -> "dict[str, list[onnx.NodeProto]]":
        found: dict[str, list[Any]] = {}
        for node in self.proto.graph.node:
            for value in dict.fromkeys(node.input):
                found.setdefault(value, []).append(node)
        return found

    @cached_property
    def initializers(self) -> "dict[str, onnx.TensorProto]":
        return {item.name: item for item in self.proto.graph.initializer}

    @cached_property
    def outputs(self) -> set[str]:
        return {item.name for item in self.proto.graph.output}

    @cached_property
    def nodes(self) -> "dict[str, onnx.NodeProto]":
        return {node.name: node for node in self.proto.graph.node}

    def constant(self, value: str) -> Array | None:
        """The initialiser of that name as an array, or None."""
        from onnx import numpy_helper

        found = self.initializers.get(value)
        return None if found is None else numpy_helper.to_array(found)

    def set_constant_(self, value: str, array: Array) -> None:
        from onnx import numpy_helper

        self.initializers[value].CopyFrom(numpy_helper.from_array(array, value))


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A product with a constant weight. output_axis: the weight's axis of output channels; input_axis: the other."""

    node: str
    op: str
    input: str
    weight: str
    bias: str | None
    output: str
    output_axis: int
    input_axis: int
    groups: int


def load_graph(path: Path) -> Graph:
    import onnx

    return Graph(onnx.load(path))


def save_graph(graph: Graph, path: Path) -> None:
    import onnx

    write_with(path, lambda temporary: onnx.save(graph.proto, str(temporary)))


def attribute(node: "onnx.NodeProto", name: str, default: Any) -> Any:
    import onnx

    return next((onnx.helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def layers(graph: Graph) -> list[Layer]:
    """Every convolution and matrix product whose second input is a float initialiser, in the file's order."""
    return [_layer(node) for node in graph.proto.graph.node if _has_weight(graph, node)]


def tapped(path: Path, tensors: Sequence[str], split: Split, batch: int) -> Iterator[dict[str, Array]]:
    """The values of `tensors` for each batch of the split, as {name: (n, ...)}; only one batch is held at a time."""
    import onnx

    proto = onnx.load(path)
    inputs = [name for name in tensors if name in {item.name for item in proto.graph.input}]
    inner = [name for name in dict.fromkeys(tensors) if name not in inputs]
    given = {item.name for item in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner if name not in given)
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        augmented = Path(folder) / "tapped.onnx"
        onnx.save(proto, str(augmented))
        session = open_session(augmented)
    for feeds, _labels in split.batches(batch):
        found = dict(zip(inner, session.run(inner, feeds), strict=True)) if inner else {}
        yield found | {name: feeds[name] for name in inputs}


def _has_weight(graph: Graph, node: "onnx.NodeProto") -> bool:
    if node.op_type not in HEAVY_OP_TYPES or len(node.input) < 2:
        return False
    weight = graph.initializers.get(node.input[1])
    return weight is not None and weight.data_type == 1 and len(weight.dims) >= 2


def _layer(node: "onnx.NodeProto") -> Layer:
    output_axis, input_axis = {"Conv": (0, 1), "ConvTranspose": (1, 0), "MatMul": (-1, -2), "Gemm": (1, 0)}[
        node.op_type
    ]
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        output_axis, input_axis = 0, 1
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
    return Layer(
        node=node.name, op=node.op_type, input=node.input[0], weight=node.input[1], bias=bias, output=node.output[0],
        output_axis=output_axis, input_axis=input_axis, groups=int(attribute(node, "group", 1)),
    )  # fmt: skip
