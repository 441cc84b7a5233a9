"""Fewer channels: each convolution and matrix product timed beside itself with the shapes that pruning leaves."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compress.export.audit import HEAVY_FLOAT_OPS
from compress.measure import isolated
from compress.probe import graphs
from compress.probe.estimate import Change, Whole, kernel_ratio, speedup, whole_of
from compress.probe.methods import Method
from compress.probe.pruned import pruned
from compress.probe.sites import Net, Site
from compress.probe.task import Found, Nodes, Task

COVERED = 0.90
# What one pair needs at least: opening two files, warming up, reading two profiles.
PAIR_SECONDS = 0.25
START_SECONDS = 1.0
MOST_COPIES = 8
MOST_WEIGHT_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Group:
    """Equal sites, of which one is timed for all. kernels: names of the file's kernels that compute them."""

    site: Site
    kernels: list[str]
    profile_ms: float


def predict(task: Task, method: Method) -> Found:
    """Time the replacement beside the float kernel for the sites that hold 90 % of the time, within the budget."""
    net, nodes = Net(task.path, task.feeds), task.profile()
    found = groups(net, nodes)
    if not found:
        return Found(note="no node of the file has a kernel that this method would replace")
    calls_ms = task.calls_ms()
    fitting = max(1, int((task.left() - START_SECONDS) / PAIR_SECONDS))
    chosen = _largest(found, nodes)[:fitting]
    copies = [_copies(group.site, net) for group in chosen]
    answer = _timed(task, method, net.opset, list(zip(chosen, copies, strict=True)))
    whole = whole_of(calls_ms, nodes, float(answer["floor_ms"]))
    changes = [
        Change(
            now_ms=sum(whole.kernels_ms[kernel] for kernel in group.kernels),
            ratio=kernel_ratio(pair, float(answer["floor_ms"]), count),
        )
        for group, count, pair in zip(chosen, copies, answer["pairs"], strict=True)
        if pair and "refused" not in pair
    ]
    return _found(whole, changes, chosen, answer["pairs"], method)


def groups(net: Net, nodes: Nodes) -> list[Group]:
    """The sites whose kernels are in the profile, equal ones together, those with the most time first."""
    times = {str(node["name"]): float(node["time_ms"]) for node in nodes}
    owned: dict[str, list[str]] = {}
    for node in nodes:
        owner = net.owner(str(node["name"])) if node["op"] in HEAVY_FLOAT_OPS else None
        if owner is not None:
            owned.setdefault(owner, []).append(str(node["name"]))
    alike: dict[Any, list[Site]] = {}
    for site in net.sites:
        if site.name in owned:
            alike.setdefault(site.key, []).append(site)
    found = []
    for sites in alike.values():
        kernels = [kernel for site in sites for kernel in owned[site.name]]
        found.append(Group(site=sites[0], kernels=kernels, profile_ms=sum(times[kernel] for kernel in kernels)))
    return sorted(found, key=lambda group: -group.profile_ms)


def _largest(found: Sequence[Group], nodes: Nodes) -> list[Group]:
    """Groups until they hold 90 % of the time."""
    wanted = COVERED * sum(float(node["time_ms"]) for node in nodes)
    chosen: list[Group] = []
    for group in found:
        if sum(one.profile_ms for one in chosen) < wanted:
            chosen.append(group)
    return chosen


def _copies(site: Site, net: Net) -> int:
    """So many that the probe streams as many bytes of weights as the model does, within reason."""
    wanted = min(sum(one.weight_bytes for one in net.sites), MOST_WEIGHT_BYTES) / max(1, site.weight_bytes)
    return int(min(MOST_COPIES, max(1, np.ceil(wanted))))


def _timed(task: Task, method: Method, opset: int, chosen: Sequence[tuple[Group, int]]) -> dict[str, Any]:
    """The worker's answer, see `isolated.probe_pairs`."""
    with tempfile.TemporaryDirectory(prefix="compress-") as name:
        folder = Path(name)
        pairs = []
        for place, (group, copies) in enumerate(chosen):
            old, new = folder / f"{place}-old.onnx", folder / f"{place}-new.onnx"
            narrow = pruned(group.site, method.amount)
            onnx.save(graphs.draw(group.site, copies=copies, opset=opset), str(old))
            onnx.save(graphs.draw(narrow, copies=copies, opset=opset), str(new))
            pairs.append((old, new))
        onnx.save(graphs.idle_model(), str(folder / "idle.onnx"))
        return isolated.probe_pairs(
            folder / "idle.onnx", pairs, task.bench, max(PAIR_SECONDS, task.left() - START_SECONDS)
        )


def _found(whole: Whole, changes: list[Change], chosen: list[Group], pairs: list[Any], method: Method) -> Found:
    refused = next((pair["refused"] for pair in pairs if pair and "refused" in pair), "")
    note = f"{len(changes)} of {len(chosen)} distinct kernels timed" + (f"; refused: {refused}" if refused else "")
    if not changes:
        return Found(note=note)
    covered = min(1.0, sum(change.now_ms for change in changes) / whole.total_ms)
    # Fewer channels also shrink what stands between the layers; at worst not at all.
    return Found(speedup=speedup(whole, changes, (1 - method.amount, 1.0)), covered_share=covered, note=note)
