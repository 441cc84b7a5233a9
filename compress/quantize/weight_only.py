"""Weights to 8 or 4 bits, activations left in float: smaller files, and faster ones where reading weights is the work.

Matrix products with a group size become MatMulNBits, whose kernels take the codes as they are; everything else gets a
DequantizeLinear on its weight, which saves size only. Codes are symmetric: w = scale x code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from compress.data import Array, Split
from compress.quantize.graph import Graph, Layer, attribute, layers, load_graph, save_graph
from compress.quantize.moments import Moments, as_rows, from_rows, moments, refusal
from compress.quantize.reconstruct import Problem, reconstruct
from compress.quantize.schemes import WeightScheme

if TYPE_CHECKING:
    import onnx

# MatMulNBits computes with 8-bit activations, a scale per row and block, at this level: that is where its speed is.
ACCURACY_LEVEL = 4
INT4_OPSET = 21
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
# Smaller tables and weights are not worth a scale.
FEWEST_VALUES = 1024


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Codes of one weight. rows: (groups of the layer, outputs, inputs); scale: the same, or (..., blocks)."""

    codes: Tensor
    scale: Tensor


def quantize_weights(
    source: Path, target: Path, scheme: WeightScheme, calibration: Split, on_batch: Callable[[int, int], None]
) -> list[str]:
    """Write `source` with integer weights to `target`. Returns which layers stayed in float and why."""
    graph = load_graph(source)
    chosen, left = _choose(graph)
    known: dict[str, Moments] = {}
    if scheme.rounding == "gptq":
        known = moments(source, graph, chosen, calibration, on_batch)
        left += [f"{layer.node}: never executed on calibration data" for layer in chosen if layer.node not in known]
    for layer in chosen:
        if scheme.rounding != "gptq" or layer.node in known:
            _replace_(graph, layer, scheme, known.get(layer.node))
    for node in [node for node in graph.proto.graph.node if node.op_type == "Gather"]:
        _replace_table_(graph, node)
    _raise_opset_(graph.proto, scheme)
    _remove_unused_(graph.proto)
    save_graph(graph, target)
    return left


def grid_of(rows: Tensor, scheme: WeightScheme, known: Moments | None) -> Grid:
    """Codes and scales of a weight given as (groups of the layer, outputs, inputs)."""
    low, high = -(2 ** (scheme.bits - 1)), 2 ** (scheme.bits - 1) - 1
    size = min(scheme.group or rows.shape[-1], rows.shape[-1])
    blocks = _in_blocks(rows, size)
    scale = block_scales(blocks, high, clip=scheme.rounding != "nearest")
    wide = scale.repeat_interleave(size, dim=-1)[..., : rows.shape[-1]]
    if known is None:
        return Grid(codes=(rows / wide).round().clamp(low, high), scale=scale)
    problem = Problem(target=rows / wide, scale=wide, gram=known.gram, low=low, high=high)
    return Grid(codes=reconstruct(problem), scale=scale)


def block_scales(blocks: Tensor, high: int, *, clip: bool) -> Tensor:
    """(..., blocks) from weights (..., blocks, size): largest |w| / high, or with `clip` of least squared error."""
    widest = blocks.abs().amax(dim=-1).clamp_min(1e-12) / high
    if not clip:
        return widest
    errors = torch.stack([_error(blocks, widest * shrink, high) for shrink in SHRINKS])
    return widest * torch.tensor(SHRINKS)[errors.argmin(dim=0)]


def pack_nbits(codes: Array, bits: int, size: int) -> Array:
    """Codes (outputs, inputs) as MatMulNBits stores them: unsigned, (outputs, blocks, bytes), low half first."""
    outputs, inputs = codes.shape
    blocks = -(-inputs // size)
    offset = 2 ** (bits - 1)
    whole = np.full((outputs, blocks * size), offset, dtype=np.uint8)
    whole[:, :inputs] = codes.astype(np.int16) + offset
    shaped = whole.reshape(outputs, blocks, size)
    return shaped if bits == 8 else shaped[..., 0::2] | (shaped[..., 1::2] << 4)


def _choose(graph: Graph) -> tuple[list[Layer], list[str]]:
    chosen, left = [], []
    for layer in layers(graph):
        weight = graph.constant(layer.weight)
        reason = refusal(graph, layer)
        if weight is not None and weight.size < FEWEST_VALUES:
            reason = f"{weight.size} weights only"
        elif len(graph.consumers[layer.weight]) > 1:
            reason = "its weight is shared"
        (left.append(f"{layer.node}: {reason}") if reason else chosen.append(layer))
    return chosen, left


def _replace_(graph: Graph, layer: Layer, scheme: WeightScheme, known: Moments | None) -> None:
    node, weight = graph.nodes[layer.node], graph.constant(layer.weight)
    if weight is None:
        raise AssertionError("layers have constant weights")
    rows = torch.tensor(as_rows(layer, weight), dtype=torch.float32)
    plain = layer.op == "MatMul" or (attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0)
    if scheme.group and layer.op != "Conv" and plain:
        _use_matmul_nbits_(graph, layer, scheme, grid_of(rows, scheme, known))
    else:
        whole = WeightScheme(name=scheme.name, bits=scheme.bits, rounding=scheme.rounding)
        _use_dequantize_(graph, layer, weight, grid_of(rows, whole, known), scheme.bits)


def _use_matmul_nbits_(graph: Graph, layer: Layer, scheme: WeightScheme, grid: Grid) -> None:
    import onnx
    from onnx import numpy_helper

    node = graph.nodes[layer.node]
    _, outputs, inputs = grid.codes.shape
    size = int(scheme.group or inputs)
    names = [f"{layer.weight}_codes", f"{layer.weight}_scales"]
    packed = pack_nbits(grid.codes[0].numpy(), scheme.bits, size)
    graph.proto.graph.initializer.extend([
        numpy_helper.from_array(packed, names[0]),
        numpy_helper.from_array(np.ascontiguousarray(grid.scale[0].numpy().reshape(-1), dtype=np.float32), names[1]),
    ])  # fmt: skip
    output = f"{layer.node}_product" if layer.bias else layer.output
    product = onnx.helper.make_node(
        "MatMulNBits", [layer.input, *names], [output], name=layer.node, domain="com.microsoft",
        K=inputs, N=outputs, bits=scheme.bits, block_size=size, accuracy_level=ACCURACY_LEVEL,
    )  # fmt: skip
    nodes = [product]
    if layer.bias:
        nodes.append(onnx.helper.make_node("Add", [output, layer.bias], [layer.output], name=f"{layer.node}_bias"))
    _swap_(graph.proto, node, nodes)


def _use_dequantize_(graph: Graph, layer: Layer, weight: Array, grid: Grid, bits: int) -> None:
    """One scale per output channel, on the weight as it is."""
    import onnx
    from onnx import numpy_helper

    codes = from_rows(layer, grid.codes.numpy(), weight.shape).astype(np.int8)
    names = [f"{layer.weight}_codes", f"{layer.weight}_scales"]
    scale = np.ascontiguousarray(grid.scale.numpy().reshape(-1), dtype=np.float32)
    graph.proto.graph.initializer.extend([
        numpy_helper.from_array(codes, names[0])
        if bits == 8
        else onnx.helper.make_tensor(names[0], onnx.TensorProto.INT4, codes.shape, codes.ravel()),
        numpy_helper.from_array(scale, names[1]),
    ])  # fmt: skip
    axis = layer.output_axis % weight.ndim
    wide = onnx.helper.make_node(
        "DequantizeLinear", names, [f"{layer.weight}_wide"], name=f"{names[0]}_wide", axis=axis
    )
    node = graph.nodes[layer.node]
    node.input[1] = wide.output[0]
    graph.proto.graph.node.insert(_place(graph.proto, node), wide)


def _replace_table_(graph: Graph, node: "onnx.NodeProto") -> None:
    """Rows of an embedding table as 8-bit codes with a scale each; only the rows looked up are made wide."""
    import onnx
    from onnx import numpy_helper

    table = graph.constant(node.input[0])
    axis = attribute(node, "axis", 0)
    if table is None or table.ndim != 2 or axis != 0 or table.dtype != np.float32 or table.size < FEWEST_VALUES:
        return
    if len(graph.consumers[node.input[0]]) > 1:
        return  # tied to a head, which needs it as it is
    scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-12) / 127
    name = node.input[0]
    graph.proto.graph.initializer.extend([
        numpy_helper.from_array(np.round(table / scale).astype(np.int8), f"{name}_codes"),
        numpy_helper.from_array(scale.astype(np.float32), f"{name}_scales"),
    ])  # fmt: skip
    make = onnx.helper.make_node
    base, rows = node.name, node.input[1]
    _swap_(graph.proto, node, [
        make("Gather", [f"{name}_codes", rows], [f"{base}_codes"], name=f"{base}_codes", axis=0),
        make("Gather", [f"{name}_scales", rows], [f"{base}_scales"], name=f"{base}_scales", axis=0),
        make("Cast", [f"{base}_codes"], [f"{base}_float"], name=f"{base}_float", to=onnx.TensorProto.FLOAT),
        make("Mul", [f"{base}_float", f"{base}_scales"], [node.output[0]], name=base),
    ])  # fmt: skip


def _swap_(proto: "onnx.ModelProto", node: "onnx.NodeProto", new: "list[onnx.NodeProto]") -> None:
    place = _place(proto, node)
    del proto.graph.node[place]
    for offset, one in enumerate(new):
        proto.graph.node.insert(place + offset, one)


def _place(proto: "onnx.ModelProto", node: "onnx.NodeProto") -> int:
    return next(i for i, one in enumerate(proto.graph.node) if one.name == node.name and one.output == node.output)


def _raise_opset_(proto: "onnx.ModelProto", scheme: WeightScheme) -> None:
    """4-bit tensors came with opset 21; the contributed operators have a domain of their own."""
    import onnx

    domains = {item.domain for item in proto.opset_import}
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx") and scheme.bits == 4 and item.version < INT4_OPSET:
            item.version = INT4_OPSET
    proto.ir_version = max(proto.ir_version, 10 if scheme.bits == 4 else proto.ir_version)
    if "com.microsoft" not in domains:
        proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def _remove_unused_(proto: "onnx.ModelProto") -> None:
    used: set[str] = {name for node in proto.graph.node for name in node.input}
    kept: list[Any] = sorted(
        (item for item in proto.graph.initializer if item.name in used), key=lambda item: item.name
    )
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)


def _in_blocks(rows: Tensor, size: int) -> Tensor:
    """(..., inputs) as (..., blocks, size), the last block filled with zeros."""
    missing = -rows.shape[-1] % size
    return torch.nn.functional.pad(rows, (0, missing)).unflatten(-1, (-1, size))


def _error(blocks: Tensor, scale: Tensor, high: int) -> Tensor:
    codes = (blocks / scale[..., None]).round().clamp(-high - 1, high)
    return ((codes * scale[..., None] - blocks) ** 2).sum(dim=-1)
