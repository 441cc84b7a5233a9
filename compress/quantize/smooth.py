"""SmoothQuant: outliers of a few activation channels moved into the weights that read them.

X W = (X / s) (s W), with s_j = max|X_j|^a / max|W_j|^(1 - a): Xiao et al. 2023, equation 4, with a = 0.5. 1 / s goes
into the LayerNormalization that makes X where nothing else reads it, and into a Mul of its own otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from compress.data import Array
from compress.quantize.graph import Graph, Layer, layers
from compress.quantize.statistics import ChannelStatistics

if TYPE_CHECKING:
    import onnx

Floats = NDArray[np.float64]

STRENGTH = 0.5
# Below this ratio of the largest channel to the median one there is no outlier to move.
WORTH_IT = 4.0
LARGEST_SCALE = 1e4


@dataclass(frozen=True, kw_only=True)
class Smoothed:
    """folded, inserted: tensors whose scales went into a LayerNormalization, into a Mul; left: why others were not."""

    folded: tuple[str, ...]
    inserted: tuple[str, ...]
    left: tuple[str, ...]


def smooth_inputs(graph: Graph) -> dict[str, int]:
    """The tensors whose statistics `smooth_` needs, with their channel axis."""
    return dict.fromkeys(_groups(graph), -1)


def smooth_(graph: Graph, statistics: Mapping[str, ChannelStatistics]) -> Smoothed:
    """Smooth the input of every group of matrix products that share one. statistics: of `smooth_inputs`."""
    folded: list[str] = []
    inserted: list[str] = []
    left: list[str] = []
    for tensor, group in _groups(graph).items():
        if tensor not in statistics:
            left.append(f"{tensor}: never computed on calibration data")
            continue
        magnitude = statistics[tensor].magnitude
        if outlier_ratio(magnitude) < WORTH_IT:
            left.append(f"{tensor}: no channel stands out ({outlier_ratio(magnitude):.1f} times the median)")
            continue
        scales = smoothing_scales(magnitude, _weight_ranges(graph, group))
        for layer in group:
            _scale_rows_(graph, layer, scales)
        (folded if _divide_(graph, tensor, group, scales) else inserted).append(tensor)
    return Smoothed(folded=tuple(folded), inserted=tuple(inserted), left=tuple(left))


def smoothing_scales(activations: Floats, weights: Floats) -> Floats:
    """s per channel, of median 1. activations, weights: (channels,) largest magnitudes; dead channels keep s = 1."""
    alive = (activations > 0) & (weights > 0)
    raw = np.ones_like(activations)
    raw[alive] = activations[alive] ** STRENGTH / weights[alive] ** (1 - STRENGTH)
    middle = float(np.median(raw[alive])) if alive.any() else 1.0
    return np.where(alive, np.clip(raw / middle, 1 / LARGEST_SCALE, LARGEST_SCALE), 1.0)


def outlier_ratio(magnitude: Floats) -> float:
    """The largest channel against the median live one."""
    alive = magnitude[magnitude > 0]
    return float(alive.max() / np.median(alive)) if alive.size else 1.0


def _groups(graph: Graph) -> dict[str, list[Layer]]:
    """Matrix products by the tensor they read, weights used once only."""
    found: dict[str, list[Layer]] = {}
    for layer in layers(graph):
        if layer.op in ("MatMul", "Gemm") and len(graph.consumers[layer.weight]) == 1 and _is_plain(graph, layer):
            found.setdefault(layer.input, []).append(layer)
    return found


def _is_plain(graph: Graph, layer: Layer) -> bool:
    from compress.quantize.graph import attribute

    weight = graph.constant(layer.weight)
    return weight is not None and weight.ndim == 2 and not attribute(graph.nodes[layer.node], "transA", 0)


def _weight_ranges(graph: Graph, group: list[Layer]) -> Floats:
    """Largest |weight| per input channel over the whole group."""
    ranges = []
    for layer in group:
        weight = graph.constant(layer.weight)
        if weight is not None:
            ranges.append(np.abs(np.moveaxis(weight, layer.input_axis, 0)).max(axis=1))
    return np.asarray(np.max(ranges, axis=0), dtype=np.float64)


def _scale_rows_(graph: Graph, layer: Layer, scales: Floats) -> None:
    weight = graph.constant(layer.weight)
    if weight is None:
        raise AssertionError("groups are made of layers with constant weights")
    shaped = scales[:, None] if layer.input_axis in (0, -2) else scales[None, :]
    graph.set_constant_(layer.weight, (weight * shaped).astype(np.float32))


def _divide_(graph: Graph, tensor: str, group: list[Layer], scales: Floats) -> bool:
    """Divide the tensor by `scales` for this group. Returns whether that cost no new node."""
    norm = graph.producers.get(tensor)
    readers = {node.name for node in graph.consumers[tensor]}
    if norm is not None and readers == {layer.node for layer in group} and _fold_(graph, norm, scales):
        return True
    _insert_mul_(graph, tensor, group, (1 / scales).astype(np.float32))
    return False


def _fold_(graph: Graph, norm: "onnx.NodeProto", scales: Floats) -> bool:
    """Into weight and bias of a LayerNormalization that nothing else uses."""
    if norm.op_type != "LayerNormalization" or norm.output[0] in graph.outputs:
        return False
    values = [graph.constant(name) for name in norm.input[1:] if name]
    if any(value is None or value.shape != scales.shape for value in values):
        return False
    if any(len(graph.consumers[name]) > 1 for name in norm.input[1:] if name):
        return False
    for name, value in zip([name for name in norm.input[1:] if name], values, strict=True):
        graph.set_constant_(name, _divided(value, scales))
    return True


def _divided(value: Array | None, scales: Floats) -> Array:
    if value is None:
        raise AssertionError("only constants are folded")
    return np.asarray((value / scales).astype(np.float32))


def _insert_mul_(graph: Graph, tensor: str, group: list[Layer], factors: Array) -> None:
    import onnx
    from onnx import numpy_helper

    name = f"{tensor}_smooth"
    graph.proto.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factor"))
    mul = onnx.helper.make_node("Mul", [tensor, f"{name}_factor"], [name], name=name)
    members = {layer.node for layer in group}
    nodes = list(graph.proto.graph.node)
    first = next(i for i, node in enumerate(nodes) if node.name in members)
    for node in nodes:
        if node.name in members:
            node.input[0] = name
    graph.proto.graph.node.insert(first, mul)
