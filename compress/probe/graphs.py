"""Small ONNX graphs of one site: as it is in float, and with the kernel a method would put in its place.

A graph holds several copies of the node, each with weights of its own, so that weights come from the memory level they
come from in the model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compress.data import Array
from compress.probe.sites import Site

MICROSOFT = "com.microsoft"
IR_VERSION = 10
BLOCK = 128
# ONNX Runtime's `accuracy_level` 4: activations are quantized on the fly and the product computed in int8.
COMPUTE_IN_INT8 = 4

Values = dict[str, Array]


@dataclass
class Draft:
    """A graph being built."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, onnx.ValueInfoProto] = field(default_factory=dict)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    values: Values = field(default_factory=dict)

    def constant(self, name: str, value: Array) -> str:
        self.values[name] = np.asarray(value, order="C")
        return name

    def given(self, name: str, kind: int, shape: tuple[int, ...]) -> str:
        self.inputs[name] = helper.make_tensor_value_info(name, kind, shape)
        return name

    def result(self, name: str, kind: int, shape: tuple[int, ...]) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def node(self, op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/{op}", domain=domain, **attributes))
        return output

    def model(self) -> onnx.ModelProto:
        tensors = [numpy_helper.from_array(value, name) for name, value in self.values.items()]
        graph = helper.make_graph(self.nodes, "probe", list(self.inputs.values()), self.outputs, tensors)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


Build = Callable[[Draft, Site, int], None]
Drawn = tuple[Site, Build]


def draw(drawn: Drawn, *, copies: int, opset: int) -> onnx.ModelProto:
    """A model of `copies` nodes of a site, each made by its build; computed inputs are shared, outputs are not."""
    site, build = drawn
    draft = Draft(opset=opset)
    for copy in range(copies):
        build(draft, site, copy)
    return draft.model()


def idle_model(nodes: int = 16) -> onnx.ModelProto:
    """A chain of nodes with one number each: what the profiler shows for them is its own cost."""
    draft = Draft(opset=17)
    name = draft.given("x", TensorProto.FLOAT, (1,))
    for place in range(nodes):
        name = draft.node("Sin" if place % 2 else "Neg", [name], f"y{place}")
    draft.result(name, TensorProto.FLOAT, (1,))
    return draft.model()


def in_float(draft: Draft, site: Site, copy: int) -> None:
    """The node as it is."""
    names = [_float_input(draft, site, copy, i) for i in range(len(site.shapes))]
    output = _with_tail(draft, site, draft.node(site.op, names, f"raw{copy}", **site.attributes))
    draft.result(output, TensorProto.FLOAT, site.output)


def weight_only(bits: int) -> Build:
    """A matrix product whose weights are stored in blocks of `bits`-bit integers, with one scale each."""

    def build(draft: Draft, site: Site, copy: int) -> None:
        weight, bias = product_weight(site), site.constants.get(2)
        inner, outer = weight.shape
        blocks = -(-inner // BLOCK)
        rng = np.random.default_rng(copy)
        names = [
            draft.given("in0", TensorProto.FLOAT, site.shapes[0] or ()),
            draft.constant(f"w{copy}", rng.integers(0, 256, (outer, blocks, BLOCK * bits // 8), dtype=np.uint8)),
            draft.constant(f"w{copy}_scale", np.full(outer * blocks, 2.0**-bits, np.float32)),
        ]
        output = draft.node(
            "MatMulNBits", names, f"product{copy}", MICROSOFT, K=inner, N=outer, bits=bits, block_size=BLOCK,
            accuracy_level=COMPUTE_IN_INT8,
        )  # fmt: skip
        if bias is not None:
            output = draft.node("Add", [output, draft.constant(f"b{copy}", bias)], f"out{copy}")
        draft.result(output, TensorProto.FLOAT, site.output)

    return build


def is_product(site: Site) -> bool:
    """Whether a site is a matrix product of one computed tensor with a constant (in, out), not transposed."""
    scaled = any(site.attributes.get(name, 1.0) != 1.0 for name in ("alpha", "beta"))
    plain = site.op in ("MatMul", "Gemm") and not site.attributes.get("transA") and not scaled
    return plain and site.activations == [0] and site.constants[1].ndim == 2


def product_weight(site: Site) -> Array:
    """The constant of a matrix product as (in, out)."""
    weight = site.constants[1]
    return weight.T if site.attributes.get("transB") else weight


def _float_input(draft: Draft, site: Site, copy: int, position: int) -> str:
    shape = site.shapes[position]
    if shape is None:
        return ""
    if position in site.constants:
        return draft.constant(f"c{copy}_{position}", site.constants[position])
    return draft.given(f"in{position}", TensorProto.FLOAT, shape)


def _with_tail(draft: Draft, site: Site, output: str) -> str:
    if site.tail is None:
        return output
    op, limits = site.tail
    names = [draft.constant(f"{output}_{i}", np.array(limit, np.float32)) for i, limit in enumerate(limits)]
    return draft.node(op, [output, *names], f"{output}_{op}")
