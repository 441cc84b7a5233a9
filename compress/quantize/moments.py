"""First and second moments of what each layer multiplies its weight with, streaming over calibration samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from compress.data import Array, Split
from compress.quantize.graph import Graph, Layer, attribute, tapped

BATCH = 16
# Positions of a convolution, or tokens, looked at per sample: neighbours tell almost the same.
ROWS_PER_SAMPLE = 48


@dataclass(frozen=True, kw_only=True)
class Moments:
    """gram: (groups, inputs, inputs), E[x x^T]; mean: (groups, inputs). Inputs as in the weight's rows."""

    gram: Tensor
    mean: Tensor


def refusal(graph: Graph, layer: Layer) -> str:
    """Why a layer's products cannot be laid out as rows; empty when they can."""
    node, weight = graph.nodes[layer.node], graph.constant(layer.weight)
    if weight is None or layer.op == "ConvTranspose":
        return f"{layer.op} is left at nearest"
    if layer.op != "Conv":
        if weight.ndim != 2:
            return f"a weight of {weight.ndim} axes is left at nearest"
        return "a transposed input is left at nearest" if attribute(node, "transA", 0) else ""
    if weight.ndim != 4:
        return f"a convolution over {weight.ndim - 2} axes is left at nearest"
    return "" if attribute(node, "auto_pad", b"NOTSET") == b"NOTSET" else "automatic padding is left at nearest"


def moments(
    path: Path, graph: Graph, wanted: Sequence[Layer], split: Split, on_batch: Callable[[int, int], None]
) -> dict[str, Moments]:
    """Moments by node of the layers in `wanted`, none of them refused. Layers that saw no value are left out."""
    sums: dict[str, tuple[Tensor, Tensor, int]] = {}
    done = 0
    for found in tapped(path, [layer.input for layer in wanted], split, BATCH):
        for layer in wanted:
            rows = input_rows(graph, layer, found[layer.input])
            if rows.shape[1]:
                sums[layer.node] = _added(sums.get(layer.node), rows)
        done += BATCH
        on_batch(min(done, len(split)), len(split))
    return {
        name: Moments(gram=(gram / count).float(), mean=(mean / count).float())
        for name, (gram, mean, count) in sums.items()
    }


def input_rows(graph: Graph, layer: Layer, values: Array) -> Tensor:
    """What the weight is multiplied with: (groups, rows, inputs per group), at most ROWS_PER_SAMPLE rows a sample."""
    given = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if layer.op != "Conv":
        samples = given.reshape(len(given), -1, given.shape[-1])
        return samples[:, :: _step(samples.shape[1])].reshape(1, -1, given.shape[-1])
    node, weight = graph.nodes[layer.node], graph.constant(layer.weight)
    if weight is None:
        raise AssertionError("layers have constant weights")
    top, left, bottom, right = attribute(node, "pads", [0, 0, 0, 0])
    padded = functional.pad(given, (left, right, top, bottom))
    patches = functional.unfold(
        padded,
        weight.shape[2:],
        dilation=tuple(attribute(node, "dilations", [1, 1])),
        stride=tuple(attribute(node, "strides", [1, 1])),
    )
    chosen = patches[:, :, :: _step(patches.shape[2])]
    grouped = chosen.reshape(len(given), layer.groups, -1, chosen.shape[2])
    return grouped.permute(1, 0, 3, 2).reshape(layer.groups, -1, grouped.shape[2])


def as_rows(layer: Layer, weight: Array) -> Array:
    """The weight as (groups, outputs per group, inputs per group)."""
    if layer.op == "Conv":
        return weight.reshape(layer.groups, weight.shape[0] // layer.groups, -1)
    outputs_first = weight if layer.output_axis == 0 else weight.T
    return np.asarray(outputs_first[None])


def from_rows(layer: Layer, rows: Array, shape: Sequence[int]) -> Array:
    """The inverse of `as_rows`. shape: of the weight."""
    if layer.op == "Conv":
        return rows.reshape(tuple(shape))
    return np.ascontiguousarray(rows[0] if layer.output_axis == 0 else rows[0].T)


def _added(known: tuple[Tensor, Tensor, int] | None, rows: Tensor) -> tuple[Tensor, Tensor, int]:
    gram, mean = (rows.transpose(1, 2) @ rows).double(), rows.sum(dim=1).double()
    if known is None:
        return gram, mean, rows.shape[1]
    return known[0] + gram, known[1] + mean, known[2] + rows.shape[1]


def _step(positions: int) -> int:
    """A stride over positions that leaves at most ROWS_PER_SAMPLE, odd so that it walks through all columns."""
    step = -(-positions // ROWS_PER_SAMPLE)
    return step if step % 2 or step < 2 else step + 1
