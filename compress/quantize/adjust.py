"""Better codes and biases for a quantized file: learned rounding, and bias correction from calibration means.

Both look at the layer alone: what it multiplies with in the float model. A bias that makes up for
E[(W_q - W) x] (Nagel et al. 2019, equation 17) keeps the mean of every output channel where it was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from compress.data import Array, Split
from compress.quantize.graph import Graph, Layer, layers, load_graph
from compress.quantize.moments import Moments, as_rows, from_rows, moments, refusal
from compress.quantize.reconstruct import Problem, reconstruct

if TYPE_CHECKING:
    import onnx

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Coded:
    """A layer's weight as a quantized file holds it. scale, zero_point: one value, or one per output channel."""

    codes_name: str
    codes: Array
    scale: Array
    zero_point: Array
    bias_name: str | None
    bias_scale: Array | None


@dataclass(frozen=True, kw_only=True)
class Adjusted:
    """codes: of the weight, in its shape; shift: (outputs,), to be added to the bias; loss_left: share of the

    layer's loss that is left."""

    codes: Array
    shift: Floats
    loss_left: float


def coded_layers(quantized: Graph, source: Graph) -> dict[str, tuple[Layer, Coded]]:
    """Layers of the float file whose weight the quantized one holds as integers, behind a DequantizeLinear."""
    found = {}
    for layer in layers(source):
        node = quantized.nodes.get(layer.node)
        coded = None if node is None else _coded(quantized, node)
        if coded is not None:
            found[layer.node] = (layer, coded)
    return found


def adjust(
    source_path: Path, quantized_path: Path, split: Split, *, learn: bool, on_layer: Callable[[int, int], None]
) -> tuple[dict[str, Adjusted], list[str]]:
    """New codes (when `learn`) and bias shifts by node, and which layers were left alone and why."""
    source, quantized = load_graph(source_path), load_graph(quantized_path)
    coded = coded_layers(quantized, source)
    reasons = {node: refusal(source, layer) for node, (layer, _) in coded.items()}
    wanted = [layer for node, (layer, _) in coded.items() if not reasons[node]]
    known = moments(source_path, source, wanted, split, on_layer)
    left = [f"{node}: {reason}" for node, reason in reasons.items() if reason]
    left += [f"{layer.node}: never executed on calibration data" for layer in wanted if layer.node not in known]
    found = {}
    for done, layer in enumerate(wanted):
        if layer.node in known:
            weight = source.constant(layer.weight)
            if weight is not None:
                found[layer.node] = adjust_layer(layer, weight, coded[layer.node][1], known[layer.node], learn=learn)
        on_layer(done + 1, len(wanted))
    return found, left


def adjust_layer(layer: Layer, weight: Array, coded: Coded, known: Moments, *, learn: bool) -> Adjusted:
    """weight: float, in its shape; known: moments of the layer's input."""
    scale, zero = (_per_output(layer, weight, values) for values in (coded.scale, coded.zero_point))
    rows = torch.tensor(as_rows(layer, weight), dtype=torch.float32)
    steps = _in_rows(rows, scale)
    zeros = _in_rows(rows, zero)
    # Codes stay within those in use, so that 7-bit weights keep 7 bits.
    low, high = int(coded.codes.min()), int(coded.codes.max())
    problem = Problem(target=rows / steps + zeros, scale=steps, gram=known.gram, low=low, high=high)
    plain = torch.tensor(as_rows(layer, coded.codes), dtype=torch.float32)
    codes = reconstruct(problem) if learn else plain
    off = (codes - problem.target) * steps
    shift = -(off * known.mean[:, None, :]).sum(dim=-1).reshape(-1)
    before, after = float(problem.loss(plain).sum()), float(problem.loss(codes).sum())
    return Adjusted(
        codes=from_rows(layer, codes.numpy(), weight.shape).astype(coded.codes.dtype),
        shift=shift.numpy().astype(np.float64),
        loss_left=after / before if before > 0 else 1.0,
    )


def apply_(quantized: Graph, source: Graph, adjusted: Mapping[str, Adjusted], *, bias: bool) -> int:
    """Put codes and, with `bias`, shifted biases into the quantized file. Returns how many biases were shifted."""
    shifted = 0
    for node, (_, coded) in coded_layers(quantized, source).items():
        new = adjusted.get(node)
        if new is None:
            continue
        quantized.set_constant_(coded.codes_name, new.codes)
        if bias and coded.bias_name is not None:
            _shift_bias_(quantized, coded, new.shift)
            shifted += 1
    return shifted


def _shift_bias_(quantized: Graph, coded: Coded, shift: Floats) -> None:
    name = str(coded.bias_name)
    known = quantized.constant(name)
    if known is None:
        raise AssertionError("the bias is an initialiser")
    step = 1.0 if coded.bias_scale is None else coded.bias_scale.astype(np.float64)
    moved = known.astype(np.float64) + shift / step
    limits = np.iinfo(np.int32)
    new = np.clip(np.round(moved), limits.min, limits.max) if known.dtype.kind == "i" else moved
    quantized.set_constant_(name, new.astype(known.dtype))


def _coded(graph: Graph, node: "onnx.NodeProto") -> Coded | None:
    weight = graph.producers.get(node.input[1]) if len(node.input) > 1 else None
    if weight is None or weight.op_type != "DequantizeLinear":
        return None
    codes, scale, zero = (graph.constant(name) for name in weight.input[:3])
    shared = len(graph.consumers[weight.output[0]]) > 1 or len(graph.consumers[weight.input[0]]) > 1
    if codes is None or scale is None or zero is None or shared:
        return None
    bias_name, bias_scale = _bias(graph, node)
    return Coded(
        codes_name=weight.input[0], codes=codes, scale=scale, zero_point=zero, bias_name=bias_name,
        bias_scale=bias_scale,
    )  # fmt: skip


def _bias(graph: Graph, node: "onnx.NodeProto") -> tuple[str | None, Array | None]:
    """The bias's initialiser, used by this node alone, and its scale where it is an integer."""
    name = node.input[2] if len(node.input) > 2 else ""
    producer = graph.producers.get(name)
    if producer is not None and producer.op_type == "DequantizeLinear":
        unique = len(graph.consumers[producer.input[0]]) == 1
        return (producer.input[0], graph.constant(producer.input[1])) if unique else (None, None)
    unique = name in graph.initializers and len(graph.consumers[name]) == 1
    return (name, None) if unique else (None, None)


def _per_output(layer: Layer, weight: Array, values: Array) -> Array:
    """(outputs,) from one value or one per output channel."""
    return np.broadcast_to(values.astype(np.float32).reshape(-1), (weight.shape[layer.output_axis],))


def _in_rows(rows: torch.Tensor, values: Array) -> torch.Tensor:
    """(groups, outputs per group, 1) from (outputs,)."""
    return torch.tensor(values.reshape(rows.shape[0], rows.shape[1], 1))
