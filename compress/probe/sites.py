"""The places in an ONNX file where a method changes the kernel: shapes, constants and neighbours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compress.analyze.onnx_load import open_model, with_shapes
from compress.analyze.onnx_table import table_from_onnx
from compress.data import Array
from compress.quantize.schemes import LINEAR_HEAVY

HEAVY = frozenset({"Conv", "Gemm", "MatMul"})
# What a convolution does on the way out.
ACTIVATIONS = frozenset({"Relu", "Clip"})
# A kernel bears the name of the last node fused into it, so its product is a few producers up.
FUSED_NODES = 4

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Site:
    """One node, with the activation that the runtime fuses into it.

    shapes: of its inputs, None where absent; constants: values by input position; output: its shape;
    tail: operator and constants of the activation, where there is one;
    first, last: no other heavy node before, or behind.
    """

    name: str
    op: str
    attributes: Mapping[str, Any]
    shapes: tuple[Shape | None, ...]
    constants: Mapping[int, Array] = field(repr=False)
    output: Shape
    tail: tuple[str, tuple[float, ...]] | None = None
    first: bool = False
    last: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for sites that the same kernel serves in the same time."""
        attributes = tuple(sorted((name, str(value)) for name, value in self.attributes.items()))
        constants = tuple(sorted(self.constants))
        return (self.op, attributes, self.shapes, constants, self.output, self.tail, self.first, self.last)

    @property
    def activations(self) -> list[int]:
        """Positions of the inputs that are computed."""
        return [i for i, shape in enumerate(self.shapes) if shape is not None and i not in self.constants]

    @property
    def weight_bytes(self) -> int:
        return sum(int(values.nbytes) for values in self.constants.values())


class Net:
    """A float file with shapes for one batch. feeds: inputs (n, ...) by name."""

    def __init__(self, path: Path, feeds: Mapping[str, Array]) -> None:
        self.path = path
        shapes = {name: list(values.shape) for name, values in feeds.items()}
        self.model, _ = with_shapes(open_model(path), shapes)
        self.table = table_from_onnx(path, shapes)

    @property
    def opset(self) -> int:
        return next(one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx"))

    @cached_property
    def linear_heavy(self) -> bool:
        """Whether most of the work is matrix products, for which quantizing leaves everything else in float."""
        total = sum(op.macs for op in self.table.ops)
        linear = sum(op.macs for op in self.table.ops if op.op in ("onnx::MatMul", "onnx::Gemm"))
        return bool(total) and linear / total >= LINEAR_HEAVY

    @cached_property
    def constants(self) -> dict[str, Array]:
        held = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer}
        for node in self.model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                held[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        return held

    @cached_property
    def producers(self) -> dict[str, onnx.NodeProto]:
        return {name: node for node in self.model.graph.node for name in node.output}

    @cached_property
    def consumers(self) -> dict[str, list[onnx.NodeProto]]:
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def sites(self) -> list[Site]:
        """Convolutions and matrix products in graph order, those whose shapes are known."""
        return list(self._sites())

    def owner(self, kernel: str) -> str | None:
        """Name of the heavy node that a kernel of the optimised graph computes, from the kernel's name."""
        named = {node.name: node for node in self.model.graph.node if node.name}
        name = max((name for name in named if _is_named_after(kernel, name)), key=len, default=None)
        node = named.get(name or "")
        for _ in range(FUSED_NODES):
            if node is None or node.op_type in HEAVY:
                break
            node = next((self.producers[name] for name in node.input if name in self.producers), None)
        return node.name if node is not None and node.op_type in HEAVY else None

    def _sites(self) -> Iterator[Site]:
        shapes = self._shapes()
        for node in self.model.graph.node:
            known = all(not name or name in shapes for name in (*node.input, *node.output))
            if node.op_type in HEAVY and node.domain in ("", "ai.onnx") and known and node.name:
                yield self._site(node, shapes)

    def _site(self, node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> Site:
        constants = {i: self.constants[name] for i, name in enumerate(node.input) if name in self.constants}
        computed = [i for i, name in enumerate(node.input) if name and i not in constants]
        activation = self._activation(node)
        return Site(
            name=node.name,
            op=node.op_type,
            attributes={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
            shapes=tuple(shapes[name] if name else None for name in node.input),
            constants=constants,
            output=shapes[node.output[0]],
            tail=(activation.op_type, self._numbers(activation)) if activation else None,
            first=not any(self._has_heavy(node.input[i], up=True) for i in computed),
            last=not self._has_heavy(node.output[0], up=False),
        )

    def _activation(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The activation that alone reads a convolution's output, if its limits are constants."""
        readers = self.consumers.get(node.output[0], [])
        if node.op_type != "Conv" or len(readers) != 1 or readers[0].op_type not in ACTIVATIONS:
            return None
        return readers[0] if all(name in self.constants for name in readers[0].input[1:]) else None

    def _numbers(self, activation: onnx.NodeProto) -> tuple[float, ...]:
        return tuple(float(self.constants[name]) for name in activation.input[1:])

    def _shapes(self) -> dict[str, Shape]:
        graph = self.model.graph
        found: dict[str, Shape] = {name: tuple(values.shape) for name, values in self.constants.items()}
        for value in (*graph.input, *graph.value_info, *graph.output):
            dims = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                found[value.name] = tuple(dim.dim_value for dim in dims)
        return found

    def _has_heavy(self, tensor: str, *, up: bool) -> bool:
        """Whether a heavy node with weights stands anywhere before (up) or behind a tensor."""
        waiting, seen = [tensor], set[str]()
        while waiting:
            for node in self._neighbours(waiting.pop(), up):
                if node.op_type in HEAVY and any(name in self.constants for name in node.input):
                    return True
                following = [name for name in (node.input if up else node.output) if name and name not in seen]
                seen.update(following)
                waiting += following
        return False

    def _neighbours(self, tensor: str, up: bool) -> Sequence[onnx.NodeProto]:
        if not up:
            return self.consumers.get(tensor, [])
        return [self.producers[tensor]] if tensor in self.producers else []


def _is_named_after(kernel: str, node: str) -> bool:
    """Fusions append to a node's name: `x/Conv_nchwc`, `x/MatMul/MatMulScaleFusion/`."""
    rest = kernel.removeprefix(node)
    return kernel == node or (kernel.startswith(node) and rest[:1] in ("_", "/") and not rest[1:].isdigit())


def with_values(site: Site, position: int, shape: Shape) -> Array:
    """A constant of a site repeated or cut to another shape."""
    return np.resize(site.constants[position], shape)
