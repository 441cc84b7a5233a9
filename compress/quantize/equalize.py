"""Cross-layer equalisation: scales moved between two convolutions so that channels between them use the range alike.

With a positively homogeneous f between them, W2 f(W1 x) = (W2 S) f(S^-1 W1 x) for any positive diagonal S, so the
float function stays what it is. Nagel et al. 2019, "Data-Free Quantization", equation 11: s = sqrt(r1 / r2), where r1
and r2 are the largest weights of a channel on either side. A Clip (ReLU6) is homogeneous only below its upper end:
channels that come near it on calibration data, or would once scaled, keep their scale.
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

HOMOGENEOUS = ("Relu", "LeakyRelu")
ROUNDS = 40
SETTLED = 1e-3
# Scales beyond this would only trade one extreme for the other.
LARGEST_SCALE = 1e4
# Unseen data reach further than calibration data did; on a ReLU6 net 0.9 changed outputs of one sample in a hundred.
CLIP_MARGIN = 0.5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two convolutions with nothing between them but an activation; limit: the upper end of a Clip, or none."""

    first: Layer
    second: Layer
    limit: float | None = None

    @property
    def between(self) -> str:
        return f"{self.first.node} -> {self.second.node}"


@dataclass(frozen=True, kw_only=True)
class Equalised:
    """spread: widest ratio of channel ranges over all weights, before and after; refused: why a pair was left alone."""

    pairs: tuple[str, ...]
    refused: tuple[str, ...]
    spread_before: float
    spread_after: float


def find_pairs(graph: Graph) -> tuple[list[Pair], list[str]]:
    """Pairs that can be equalised, and for every other convolution that feeds one convolution why it cannot."""
    convolutions = {layer.node: layer for layer in layers(graph) if layer.op == "Conv"}
    pairs, refused = [], []
    for first in convolutions.values():
        found = _pair(graph, first, convolutions)
        if isinstance(found, Pair):
            pairs.append(found)
        elif found:
            refused.append(found)
    return pairs, refused


def clip_inputs(pairs: list[Pair]) -> dict[str, int]:
    """The tensors whose statistics `equalize_` needs, with their channel axis: what goes into a Clip."""
    return {pair.first.output: 1 for pair in pairs if pair.limit is not None}


def equalize_(graph: Graph, statistics: Mapping[str, ChannelStatistics] | None) -> Equalised:
    """Equalise every pair of the graph until scales settle. statistics: of `clip_inputs`; None leaves Clips alone."""
    pairs, refused = find_pairs(graph)
    if statistics is None:
        refused += [f"{pair.between}: a Clip lies between them" for pair in pairs if pair.limit is not None]
        pairs = [pair for pair in pairs if pair.limit is None]
    before = widest_spread(graph)
    reached = {name: np.maximum(found.high, 0.0) for name, found in (statistics or {}).items()}
    for _ in range(ROUNDS):
        moved = [_equalise_pair_(graph, pair, reached) for pair in pairs]
        if max(moved, default=0.0) < SETTLED:
            break
    return Equalised(
        pairs=tuple(pair.between for pair in pairs), refused=tuple(refused),
        spread_before=before, spread_after=widest_spread(graph),
    )  # fmt: skip


def scales_of(first: Floats, second: Floats) -> Floats:
    """s = sqrt(r1 / r2) per channel. first, second: (channels,) largest |weight|; a dead channel keeps its scale."""
    alive = (first > 0) & (second > 0)
    ratio = np.divide(first, second, out=np.ones_like(first), where=alive)
    return np.clip(np.sqrt(ratio), 1 / LARGEST_SCALE, LARGEST_SCALE)


def channel_ranges(weight: Array, axis: int) -> Floats:
    """Largest |weight| of each channel along `axis`: (channels,)."""
    return np.abs(np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)).max(axis=1).astype(np.float64)


def spread_of(weight: Array, axis: int) -> float:
    """How many times wider the widest channel is than the median one; 1 for a weight without a live channel."""
    ranges = channel_ranges(weight, axis)
    alive = ranges[ranges > 0]
    return float(alive.max() / np.median(alive)) if alive.size else 1.0


def widest_spread(graph: Graph) -> float:
    weights = [(graph.constant(layer.weight), layer.output_axis) for layer in layers(graph)]
    return max((spread_of(weight, axis) for weight, axis in weights if weight is not None), default=1.0)


def _pair(graph: Graph, first: Layer, convolutions: dict[str, Layer]) -> Pair | str | None:
    """The pair that begins at `first`, why there is none, or None where no convolution follows at all."""
    node, limit, crossed = graph.nodes[first.node], None, ""
    while True:
        value = node.output[0]
        followers = graph.consumers.get(value, [])
        if len(followers) != 1 or value in graph.outputs:
            # A sum or a branch needs the channels as they are.
            return f"{first.node}: its output goes to {len(followers)} places" if len(followers) > 1 else None
        node = followers[0]
        if node.name in convolutions:
            break
        if node.op_type == "Clip":
            bound = _upper_end(graph, node)
            if bound is None:
                return f"{first.node}: {node.name} does not clip between zero and a constant"
            limit = bound
        elif node.op_type not in HOMOGENEOUS:
            return f"{first.node}: {node.op_type} is not positively homogeneous" if _leads(graph, node) else None
        if crossed:
            return f"{first.node}: {crossed} and {node.op_type} follow each other"
        crossed = node.op_type
    second = convolutions[node.name]
    shared = [one.weight for one in (first, second) if len(graph.consumers[one.weight]) > 1]
    if shared:
        return f"{first.node} -> {second.node}: weight {shared[0]} is shared"
    if second.groups > 1 and not _is_depthwise(graph, second):
        return f"{first.node} -> {second.node}: grouped convolution ({second.groups} groups)"
    return Pair(first=first, second=second, limit=limit)


def _leads(graph: Graph, node: "onnx.NodeProto") -> bool:
    """Whether a convolution comes right after the node: only then is the refusal worth a word."""
    followers = graph.consumers.get(node.output[0], [])
    return any(one.op_type == "Conv" for one in followers)


def _upper_end(graph: Graph, clip: "onnx.NodeProto") -> float | None:
    """The upper end of a Clip that begins at zero, infinite where it has none; None where it cannot be handled."""
    ends = [graph.constant(name) if name else None for name in clip.input[1:3]]
    names = list(clip.input[1:3])
    if not names or ends[0] is None or float(ends[0]) != 0.0:
        return None
    if len(names) < 2 or not names[1]:
        return float("inf")
    return None if ends[1] is None else float(ends[1])


def _is_depthwise(graph: Graph, layer: Layer) -> bool:
    weight = graph.constant(layer.weight)
    return weight is not None and weight.shape[1] == 1 and layer.groups == weight.shape[0]


def _equalise_pair_(graph: Graph, pair: Pair, reached: dict[str, Floats]) -> float:
    """Scale one pair in place. Returns the largest |log scale| that was applied."""
    one, two = graph.constant(pair.first.weight), graph.constant(pair.second.weight)
    if one is None or two is None:
        raise AssertionError("pairs are made of layers with constant weights")
    axis = 0 if pair.second.groups > 1 else 1
    scales = scales_of(channel_ranges(one, 0), channel_ranges(two, axis))
    if pair.limit is not None:
        top = reached[pair.first.output]
        scales = _within(scales, top, pair.limit * CLIP_MARGIN)
        reached[pair.first.output] = top / scales
    graph.set_constant_(pair.first.weight, _scaled(one, 0, 1 / scales))
    if pair.first.bias:
        bias = graph.constant(pair.first.bias)
        if bias is not None:
            graph.set_constant_(pair.first.bias, _scaled(bias, 0, 1 / scales))
    graph.set_constant_(pair.second.weight, _scaled(two, axis, scales))
    return float(np.abs(np.log(scales)).max())


def _within(scales: Floats, top: Floats, limit: float) -> Floats:
    """Scales after which no channel comes nearer to the end of a Clip; those already there keep theirs."""
    return np.where(top >= limit, 1.0, np.maximum(scales, top / limit))


def _scaled(values: Array, axis: int, scales: Floats) -> Array:
    shape = [1] * values.ndim
    shape[axis] = -1
    return np.asarray((values * scales.reshape(shape)).astype(np.float32))
