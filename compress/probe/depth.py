"""Half the depth: what every second of the repeated blocks takes. Shares of a profile are added up."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from compress.data import Array
from compress.export.audit import HEAVY_FLOAT_OPS
from compress.probe.sites import Net

# `blocks.3.query/MatMul` is in block 3 of `blocks`; the outermost number counts.
BLOCK = re.compile(r"^(?P<stack>(?:[^\d/]*\.)?)(?P<number>\d+)(?=[./])")


@dataclass(frozen=True, kw_only=True)
class Share:
    """Share of the time that goes with the dropped blocks; low, high: by heavy kernels alone, by all that is theirs."""

    value: float
    low: float
    high: float
    blocks: int


def removable_share(path: Path, feeds: Mapping[str, Array], nodes: Sequence[Mapping[str, Any]]) -> Share:
    """Drop every second of equal neighbours: blocks of one stack with the same operators on the same shapes.

    The first of each run of equal blocks stays, because the blocks behind it want its output's shape.
    """
    net = Net(path, feeds)
    dropped = _dropped(net)
    total = sum(float(node["time_ms"]) for node in nodes)
    heavy = sum(
        float(node["time_ms"])
        for node in nodes
        if node["op"] in HEAVY_FLOAT_OPS and _block_of(net.owner(str(node["name"])) or "") in dropped
    )
    named = sum(float(node["time_ms"]) for node in nodes if _block_of(str(node["name"])) in dropped)
    low, high = sorted((heavy / total, max(heavy, named) / total)) if total else (0.0, 0.0)
    return Share(value=high, low=low, high=high, blocks=len(dropped))


def _dropped(net: Net) -> set[tuple[str, int]]:
    stacks: dict[str, dict[int, list[onnx.NodeProto]]] = defaultdict(dict)
    for node in net.model.graph.node:
        block = _block_of(node.name)
        if block:
            stacks[block[0]].setdefault(block[1], []).append(node)
    dropped: set[tuple[str, int]] = set()
    for stack, blocks in stacks.items():
        previous: Any = None
        for number in sorted(blocks):
            now = _signature(net, blocks[number])
            if now is not None and now == previous:
                dropped.add((stack, number))
                previous = None
            else:
                previous = now
    return dropped


def _signature(net: Net, nodes: Sequence[onnx.NodeProto]) -> Any:
    """Operators and the shapes of the heavy ones; None for a block without any."""
    shapes = {site.name: (site.op, site.shapes, site.output) for site in net.sites}
    heavy = tuple(shapes[node.name] for node in nodes if node.name in shapes)
    return (heavy, tuple(sorted(Counter(node.op_type for node in nodes).items()))) if heavy else None


def _block_of(name: str) -> tuple[str, int] | None:
    found = BLOCK.match(name)
    return (found["stack"], int(found["number"])) if found else None
