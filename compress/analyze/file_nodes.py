"""Kernels that ran, laid back onto the nodes of the file: runtimes fuse nodes under names of their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

# What a fused or blocked kernel was before.
BEFORE_FUSION = {
    "FusedConv": "Conv",
    "NhwcFusedConv": "Conv",
    "FusedGemm": "Gemm",
    "FusedMatMul": "MatMul",
    "SkipLayerNormalization": "LayerNormalization",
}
# ONNX Runtime names a kernel that took in an activation so.
FUSED = "fused "
LONGEST_CHAIN = 8


def on_file_nodes(path: Path, kernels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a profile under the names and operators of the file's nodes, in the file's order.

    kernels: {name, op, time_ms}. A fused kernel goes to the node that does its heavy work; times of kernels of one node
    add up; kernels that belong to no node (reorders that the runtime inserted) come last, under their own names.
    """
    graph = onnx.load(path, load_external_data=False).graph
    nodes = {node.name: node for node in graph.node}
    producers = {value: node for node in graph.node for value in node.output}
    times: dict[str, float] = {}
    rest: list[dict[str, Any]] = []
    strangers: list[Mapping[str, Any]] = []
    for kernel in kernels:
        found = _node_of(kernel, nodes, producers)
        if found is None:
            strangers.append(kernel)
        else:
            times[found.name] = times.get(found.name, 0.0) + float(kernel["time_ms"])
    for kernel in strangers:
        # A kernel under a name of its own still does what a node that was not met does.
        same = next((node for node in graph.node if node.op_type == _before(kernel) and node.name not in times), None)
        if same is None:
            rest.append(dict(kernel))
        else:
            times[same.name] = float(kernel["time_ms"])
    rows = [
        {"name": node.name, "op": f"onnx::{node.op_type}", "time_ms": times[node.name]}
        for node in graph.node
        if node.name in times
    ]
    return rows + rest


def _node_of(
    kernel: Mapping[str, Any], nodes: Mapping[str, onnx.NodeProto], producers: Mapping[str, onnx.NodeProto]
) -> onnx.NodeProto | None:
    """The node with the longest name that the kernel's begins with, walked back to the heavy one it was fused with."""
    name = str(kernel["name"]).removeprefix(FUSED)
    if kernel["op"] in ("ReorderInput", "ReorderOutput"):
        return None
    values = {value: producers[value].name for value in producers}
    names = {**values, **{node: node for node in nodes}}
    known = max((one for one in names if one and name.startswith(one)), key=len, default=None)
    if known is None:
        return None
    return _walk_back(nodes[names[known]], _before(kernel), producers)


def _before(kernel: Mapping[str, Any]) -> str:
    return BEFORE_FUSION.get(str(kernel["op"]), str(kernel["op"]))


def _walk_back(node: onnx.NodeProto, wanted: str, producers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto:
    """From the last node of a fused chain to the one with the kernel's operator; the node itself when there is none."""
    level = [node]
    for _ in range(LONGEST_CHAIN):
        for one in level:
            if one.op_type == wanted:
                return one
        level = [producers[value] for one in level for value in one.input if value in producers]
        if not level:
            break
    return node
