"""What this machine says about widths: steps of channels that pay, and times of a net's layers at several widths."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from compress.code import code_digest
from compress.export.audit import HEAVY_FLOAT_OPS
from compress.measure import isolated
from compress.probe.layers import square, timed
from compress.probe.width_table import Grid, Table, layers_to_time, measured
from compress.prune.counts import Counter
from compress.prune.widths import cliff
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, machine_key

WHOLE_SECONDS = 1.0
# Kernels are too short to be interrupted; of whole calls, those that were not are taken.
QUIET_PERCENT = 20
# Products of activations are in the file and not in the table, so the factor has a bound.
MOST_IN_NET = 1.5
CLIFF_WIDTHS = range(49, 65)


def round_to(context: Context) -> int:
    """Channels between whose multiples nothing is faster on this machine, from 3x3 convolutions of many widths."""

    def make(_folder: Path) -> dict[str, Any]:
        files = [square(width) for width in CLIFF_WIDTHS]
        times = timed(files, context.bench)
        ms = {width: one for width, one in zip(CLIFF_WIDTHS, times, strict=True) if one is not None}
        return {"ms": {str(width): one for width, one in ms.items()}, "round_to": cliff(ms)}

    key = machine_key(context) | {"code": code_digest("compress.probe.layers"), "widths": list(CLIFF_WIDTHS)}
    return int(context.store.obtain("cliffs", key, make).facts["round_to"])


def measured_table(context: Context, model: FloatModel, module: nn.Module, counter: Counter, step: int) -> Table:
    """Times of the hot layers that groups can narrow, at the first batch size of the target. step: see `round_to`."""
    batch = context.recipe.target.batch_sizes[0]
    wanted = layers_to_time(module, counter, batch, step)

    def make(_folder: Path) -> dict[str, Any]:
        context.listener.update(0, 1, f"timing {len(wanted)} layers at several widths")
        whole, layers = measured(wanted, context.bench)
        total, products = _of_file(context, model, batch)
        return {"total_ms": total, "in_net": min(MOST_IN_NET, products * total / max(whole, 1e-9)), "layers": layers}

    key = machine_key(context) | {
        "file": model.entry.digest,
        "layers": {name: layer.as_key() for name, layer in wanted.items()},
        "code": code_digest("compress.probe.width_table"),
    }
    facts = context.store.obtain("widths", key, make).facts
    grids = {
        name: Grid(axes=(tuple(row["axes"][0]), tuple(row["axes"][1])), ms=tuple(tuple(line) for line in row["ms"]))
        for name, row in facts["layers"].items()
    }
    return Table(total_ms=facts["total_ms"], in_net=facts["in_net"], layers=grids, counter=counter)


def _of_file(context: Context, model: FloatModel, batch: int) -> tuple[float, float]:
    """Milliseconds of a call of the whole file, and the share of its kernels' time in convolutions and products."""
    feeds = context.feeds(batch)
    turns = isolated.time_in_turns(model.path, model.path, feeds, context.bench, WHOLE_SECONDS)
    nodes = isolated.profile(model.path, feeds, context.bench, seconds=WHOLE_SECONDS)
    products = sum(node["time_ms"] for node in nodes if node["op"] in HEAVY_FLOAT_OPS)
    total = float(np.percentile([*turns["a_ms"], *turns["b_ms"]], QUIET_PERCENT))
    return total, products / max(1e-9, sum(node["time_ms"] for node in nodes))
