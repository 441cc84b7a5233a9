"""Times of layers at several widths, measured in the target runtime: what pruning by latency chooses widths from."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from compress.code import code_digest
from compress.export.audit import HEAVY_FLOAT_OPS
from compress.measure import isolated
from compress.probe.graphs import Draft, idle_model
from compress.prune.counts import Call, Counter, Shape, Widths
from compress.prune.layers import is_depthwise
from compress.prune.widths import cliff
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, machine_key

OPSET = 17
PAIR_SECONDS = 0.25
START_SECONDS = 1.0
WHOLE_SECONDS = 1.0
# Kernels are too short to be interrupted; of whole calls, those that were not are taken.
QUIET_PERCENT = 20
# Products of activations are in the file and not in the table, so the factor has a bound.
MOST_IN_NET = 1.5
# Shares of a layer's own channels that are timed on each axis; between them time is taken to be linear.
SHARES = (0.25, 0.5, 0.75, 1.0)
# Layers that together take this share of what all take are timed; the rest is not hot and counts as fixed.
HOT = 0.95
CLIFF_WIDTHS = range(49, 65)
CLIFF_SIDE = 14
Axes = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Table:
    """total_ms: of a call of the whole float file; layers: times of hot layers by two axes of their weight.

    in_net: how much longer a layer takes inside the net than alone.
    """

    total_ms: float
    in_net: float
    layers: Mapping[str, "Grid"]
    counter: Counter

    def ms(self, widths: Widths) -> float:
        """Predicted milliseconds of a call at these widths: what is not in the table stays as it is.

        Copies and activations shrink as well, so this errs on the slow side.
        """
        shapes = self.counter.shapes_at(widths)
        saved = sum(grid.whole - grid.at(shapes[f"{name}.weight"]) for name, grid in self.layers.items())
        return max(0.0, self.total_ms - self.in_net * saved)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """ms[i][j]: with axes[0][i] and axes[1][j] places along the first two axes of the weight."""

    axes: tuple[tuple[int, ...], tuple[int, ...]]
    ms: tuple[tuple[float, ...], ...]

    @property
    def whole(self) -> float:
        return self.ms[-1][-1]

    def at(self, shape: Sequence[int]) -> float:
        """Bilinear between the widths that were timed."""
        rows = [float(np.interp(shape[1], self.axes[1], row)) for row in self.ms]
        return float(np.interp(shape[0], self.axes[0], rows))


def round_to(context: Context) -> int:
    """Channels between whose multiples nothing is faster on this machine, from 3x3 convolutions of many widths."""

    def make(_folder: Path) -> dict[str, Any]:
        files = [_square(width) for width in CLIFF_WIDTHS]
        times = timed(files, context.bench)
        ms = {width: one for width, one in zip(CLIFF_WIDTHS, times, strict=True) if one is not None}
        return {"ms": {str(width): one for width, one in ms.items()}, "round_to": cliff(ms)}

    key = machine_key(context) | {"code": code_digest("compress.stages.prune_times"), "widths": list(CLIFF_WIDTHS)}
    return int(context.store.obtain("cliffs", key, make).facts["round_to"])


def measured_table(context: Context, model: FloatModel, module: nn.Module, counter: Counter, step: int) -> Table:
    """Times of the hot layers that groups can narrow, at the first batch size of the target. step: see `round_to`."""
    batch = context.recipe.target.batch_sizes[0]
    wanted = _layers(module, counter, batch, step)

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, f"timing {len(wanted)} layers at several widths")
        whole, layers = _measured(wanted, context.bench)
        total, products = _of_file(context, model, batch)
        return {"total_ms": total, "in_net": min(MOST_IN_NET, products * total / max(whole, 1e-9)), "layers": layers}

    key = machine_key(context) | {
        "file": model.entry.digest,
        "layers": {name: layer.as_key() for name, layer in wanted.items()},
        "code": code_digest("compress.stages.prune_times"),
    }
    facts = context.store.obtain("widths", key, make).facts
    grids = {
        name: Grid(axes=(tuple(row["axes"][0]), tuple(row["axes"][1])), ms=tuple(tuple(line) for line in row["ms"]))
        for name, row in facts["layers"].items()
    }
    return Table(total_ms=facts["total_ms"], in_net=facts["in_net"], layers=grids, counter=counter)


@dataclass(frozen=True, kw_only=True)
class _Layer:
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


def _layers(module: nn.Module, counter: Counter, batch: int, step: int) -> dict[str, _Layer]:
    """Layers of a kind that can be drawn and that some group narrows, each called once."""
    names = [call.name for call in counter.calls]
    narrowed = {axis for units in counter.per_unit.values() for axis in units}
    found = {}
    for call in counter.calls:
        layer = module.get_submodule(call.name)
        described = _described(layer, call, batch)
        touched = [(f"{call.name}.weight", dim) in narrowed for dim in (0, 1)]
        if described is None or not any(touched) or names.count(call.name) > 1:
            continue
        weight = counter.shapes[f"{call.name}.weight"]
        axes = (_widths(weight[0], step, narrow=touched[0]), _widths(weight[1], step, narrow=touched[1]))
        op, attributes, given = described
        found[call.name] = _Layer(
            op=op, attributes=attributes, given=given, weight=weight, axes=axes, depthwise=is_depthwise(layer)
        )
    return found


def _described(layer: nn.Module, call: Call, batch: int) -> tuple[str, dict[str, Any], Shape] | None:
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


def _widths(size: int, step: int, *, narrow: bool) -> tuple[int, ...]:
    if not narrow:
        return (size,)
    least = min(step, size)
    rounded = {max(least, min(size, round(share * size / step) * step)) for share in SHARES}
    return tuple(sorted({*rounded, size}))


def _of_file(context: Context, model: FloatModel, batch: int) -> tuple[float, float]:
    """Milliseconds of a call of the whole file, and the share of its kernels' time in convolutions and products."""
    feeds = context.feeds(batch)
    turns = isolated.time_in_turns(model.path, model.path, feeds, context.bench, WHOLE_SECONDS)
    nodes = isolated.profile(model.path, feeds, context.bench, seconds=WHOLE_SECONDS)
    products = sum(node["time_ms"] for node in nodes if node["op"] in HEAVY_FLOAT_OPS)
    total = float(np.percentile([*turns["a_ms"], *turns["b_ms"]], QUIET_PERCENT))
    return total, products / max(1e-9, sum(node["time_ms"] for node in nodes))


def _measured(layers: Mapping[str, _Layer], bench: isolated.Bench) -> tuple[float, dict[str, Any]]:
    """Milliseconds of all layers as they are, and of the hot ones at all widths. Equal layers are timed once."""
    kinds = {str(layer.as_key()): layer for layer in layers.values()}
    whole = timed([layer.draw((layer.weight[0], layer.weight[1])) for layer in kinds.values()], bench)
    by_kind = {kind: ms for kind, ms in zip(kinds, whole, strict=True) if ms is not None}
    of_layer = {name: by_kind.get(str(layer.as_key()), 0.0) for name, layer in layers.items()}
    hot = _hottest(of_layer)
    wanted = {str(layers[name].as_key()): layers[name] for name in hot}
    places = {kind: list(product(*layer.axes)) for kind, layer in wanted.items()}
    files = [wanted[kind].draw(one) for kind, choices in places.items() for one in choices]
    times = iter(timed(files, bench))
    rows = {kind: [next(times) for _ in choices] for kind, choices in places.items()}
    table = {
        name: _row(layers[name], rows[str(layers[name].as_key())])
        for name in hot
        if None not in rows[str(layers[name].as_key())]
    }
    return sum(of_layer.values()), table


def _row(layer: _Layer, times: Sequence[float | None]) -> dict[str, Any]:
    columns = len(layer.axes[1])
    lines = [list(times[start : start + columns]) for start in range(0, len(times), columns)]
    return {"axes": [list(axis) for axis in layer.axes], "ms": lines}


def _hottest(ms: Mapping[str, float]) -> list[str]:
    total, found, reached = sum(ms.values()), [], 0.0
    for name in sorted(ms, key=lambda one: -ms[one]):
        if reached >= HOT * total:
            break
        found.append(name)
        reached += ms[name]
    return found


def _square(width: int) -> onnx.ModelProto:
    """A 3x3 convolution from `width` channels to as many."""
    layer = _Layer(
        op="Conv", given=(1, width, CLIFF_SIDE, CLIFF_SIDE), weight=(width, width, 3, 3), depthwise=False,
        attributes={
            "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1], "group": 1,
        },
        axes=((width,), (width,)),
    )  # fmt: skip
    return layer.draw((width, width))


def _values(shape: Shape) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.05
