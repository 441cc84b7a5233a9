"""Small ONNX graphs of one site of a file, with the shapes it has or would have.

A graph holds several copies of the node, each with weights of its own, so that weights come from the memory level they
come from in the model.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compress.data import Array
from compress.probe.sites import Site

IR_VERSION = 10


@dataclass
class Draft:
    """A graph being built."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    values: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, value: Array) -> str:
        self.values[name] = np.asarray(value, order="C")
        return name

    def given(self, name: str, shape: tuple[int, ...]) -> str:
        self.inputs[name] = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        return name

    def result(self, name: str, shape: tuple[int, ...]) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/{op}", **attributes))
        return output

    def model(self) -> onnx.ModelProto:
        tensors = [numpy_helper.from_array(value, name) for name, value in self.values.items()]
        graph = helper.make_graph(self.nodes, "probe", list(self.inputs.values()), self.outputs, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=IR_VERSION)


def draw(site: Site, *, copies: int, opset: int) -> onnx.ModelProto:
    """A model of `copies` nodes of a site in float; computed inputs are shared, outputs are not."""
    draft = Draft(opset=opset)
    for copy in range(copies):
        names = [_input(draft, site, copy, position) for position in range(len(site.shapes))]
        raw = draft.node(site.op, names, f"raw{copy}", **site.attributes)
        draft.result(_with_tail(draft, site, raw), site.output)
    return draft.model()


def idle_model(nodes: int = 16) -> onnx.ModelProto:
    """A chain of nodes with one number each: what the profiler shows for them is its own cost."""
    draft = Draft(opset=17)
    name = draft.given("x", (1,))
    for place in range(nodes):
        name = draft.node("Sin" if place % 2 else "Neg", [name], f"y{place}")
    draft.result(name, (1,))
    return draft.model()


def _input(draft: Draft, site: Site, copy: int, position: int) -> str:
    shape = site.shapes[position]
    if shape is None:
        return ""
    if position in site.constants:
        return draft.constant(f"c{copy}_{position}", site.constants[position])
    return draft.given(f"in{position}", shape)


def _with_tail(draft: Draft, site: Site, output: str) -> str:
    if site.tail is None:
        return output
    op, limits = site.tail
    names = [draft.constant(f"{output}_{i}", np.array(limit, np.float32)) for i, limit in enumerate(limits)]
    return draft.node(op, [output, *names], f"{output}_{op}")
