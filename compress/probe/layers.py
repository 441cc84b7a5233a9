"""One layer of a module as an ONNX file of its own, at any width, and the time that its kernel takes."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from compress.measure import isolated
from compress.probe.graphs import Draft, idle_model
from compress.prune.counts import Call, Shape

OPSET = 17
PAIR_SECONDS = 0.25
START_SECONDS = 1.0
SQUARE_SIDE = 14
Axes = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer to be timed: kind and attributes for its node, the shape it is given, and the widths of both axes."""

    op: str
    attributes: Mapping[str, Any]
    given: Shape
    weight: Shape
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    depthwise: bool

    def as_key(self) -> dict[str, Any]:
        return {
            "op": self.op, "attributes": dict(self.attributes), "given": list(self.given),
            "weight": list(self.weight), "axes": [list(axis) for axis in self.axes],
        }  # fmt: skip

    def draw(self, places: Axes) -> onnx.ModelProto:
        """A file of this one layer with `places` along the first two axes of its weight."""
        draft = Draft(opset=OPSET)
        shape = (*places, *self.weight[2:])
        if self.op == "MatMul":
            name = draft.given("x", (*self.given[:-1], places[1]))
            weight = draft.constant("w", _values((places[1], places[0])))
            draft.result(draft.node("MatMul", [name, weight], "y"), (*self.given[:-1], places[0]))
            return draft.model()
        groups = places[0] if self.depthwise else int(self.attributes["group"])
        transposed = self.op == "ConvTranspose"
        inputs = places[0] if transposed else places[1] * groups
        name = draft.given("x", (self.given[0], inputs, *self.given[2:]))
        weight = draft.constant("w", _values(shape))
        draft.node(self.op, [name, weight], "y", **{**self.attributes, "group": groups})
        draft.outputs.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None))
        return draft.model()


def as_node(layer: nn.Module, call: Call, batch: int) -> tuple[str, dict[str, Any], Shape] | None:
    given = (batch, *call.given[1:])
    if isinstance(layer, nn.Linear):
        return "MatMul", {}, given
    if not isinstance(layer, _ConvNd) or isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        return None
    attributes: dict[str, Any] = {
        "kernel_shape": list(layer.kernel_size), "strides": list(layer.stride), "dilations": list(layer.dilation),
        "pads": [*layer.padding, *layer.padding], "group": layer.groups,
    }  # fmt: skip
    if not isinstance(layer, _ConvTransposeNd):
        return "Conv", attributes, given
    return "ConvTranspose", attributes | {"output_padding": list(layer.output_padding)}, given


def square(width: int) -> onnx.ModelProto:
    """A 3x3 convolution from `width` channels to as many."""
    layer = Layer(
        op="Conv", given=(1, width, SQUARE_SIDE, SQUARE_SIDE), weight=(width, width, 3, 3), depthwise=False,
        attributes={
            "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1], "group": 1,
        },
        axes=((width,), (width,)),
    )  # fmt: skip
    return layer.draw((width, width))


def timed(files: Sequence[onnx.ModelProto], bench: isolated.Bench) -> list[float | None]:
    """Kernel milliseconds of each file, without what the profiler adds; None where the runtime refuses it."""
    with tempfile.TemporaryDirectory(prefix="compress-") as name:
        folder = Path(name)
        paths = [folder / f"{place}.onnx" for place in range(len(files))]
        for path, file in zip(paths, files, strict=True):
            onnx.save(file, str(path))
        onnx.save(idle_model(), str(folder / "idle.onnx"))
        pairs = [(paths[place], paths[min(place + 1, len(paths) - 1)]) for place in range(0, len(paths), 2)]
        seconds = START_SECONDS + PAIR_SECONDS * len(pairs)
        answer = isolated.probe_pairs(folder / "idle.onnx", pairs, bench, seconds)
    floor = float(answer["floor_ms"])
    found = [one for pair in answer["pairs"] for one in _sides(pair, floor)]
    return found[: len(files)]


def _sides(pair: Mapping[str, Any] | None, floor: float) -> list[float | None]:
    if not pair or "refused" in pair:
        return [None, None]
    return [max(1e-4, float(np.median(pair[side]["blocks_ms"])) - floor * pair[side]["nodes"]) for side in "ab"]


def _values(shape: Shape) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.05
