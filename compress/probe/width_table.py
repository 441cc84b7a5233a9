"""Times of layers at several widths: what pruning by latency chooses widths from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from torch import nn

from compress.measure import isolated
from compress.probe.layers import Layer, as_node, timed
from compress.prune.counts import Counter, Widths
from compress.prune.layers import is_depthwise

# Shares of a layer's own channels that are timed on each axis; between them time is taken to be linear.
SHARES = (0.25, 0.5, 0.75, 1.0)
# Layers that together take this share of what all take are timed; the rest is not hot and counts as fixed.
HOT = 0.95


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


def layers_to_time(module: nn.Module, counter: Counter, batch: int, step: int) -> dict[str, Layer]:
    """Layers of a kind that can be drawn and that some group narrows, each called once."""
    names = [call.name for call in counter.calls]
    narrowed = {axis for units in counter.per_unit.values() for axis in units}
    found = {}
    for call in counter.calls:
        layer = module.get_submodule(call.name)
        node = as_node(layer, call, batch)
        touched = [(f"{call.name}.weight", dim) in narrowed for dim in (0, 1)]
        if node is None or not any(touched) or names.count(call.name) > 1:
            continue
        weight = counter.shapes[f"{call.name}.weight"]
        axes = (_widths(weight[0], step, narrow=touched[0]), _widths(weight[1], step, narrow=touched[1]))
        op, attributes, given = node
        found[call.name] = Layer(
            op=op, attributes=attributes, given=given, weight=weight, axes=axes, depthwise=is_depthwise(layer)
        )
    return found


def measured(layers: Mapping[str, Layer], bench: isolated.Bench) -> tuple[float, dict[str, Any]]:
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


def _widths(size: int, step: int, *, narrow: bool) -> tuple[int, ...]:
    if not narrow:
        return (size,)
    least = min(step, size)
    rounded = {max(least, min(size, round(share * size / step) * step)) for share in SHARES}
    return tuple(sorted({*rounded, size}))


def _row(layer: Layer, times: Sequence[float | None]) -> dict[str, Any]:
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
