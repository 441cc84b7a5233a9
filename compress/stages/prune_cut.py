"""One round of cutting: which channels go, proved equal to the masked model, with BatchNorm statistics taken anew."""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.code import code_digest
from compress.data import Array
from compress.device.facts import versions
from compress.errors import InputError
from compress.recipe.spec import Prune
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, machine_key
from compress.store import Entry

if TYPE_CHECKING:
    from torch import nn

    from compress.prune.counts import Counter
    from compress.prune.graph import Graph
    from compress.prune.groups import Found, Group
    from compress.prune.importance import LossOf, Scores
    from compress.prune.replay import Structure
    from compress.prune.widths import Chosen

# Samples whose gradients Taylor's criterion looks at; of the calibration split in batches for BatchNorm.
TAYLOR_SAMPLES = 256
NORM_BATCH = 64
# A budget that is missed by less is met: widths come in steps.
CLOSE_ENOUGH = 1.02
USELESS = 0.9


@dataclass(frozen=True)
class Job:
    """One run of the stage: the recipe's wishes and the float file."""

    context: Context
    spec: Prune
    model: FloatModel

    @property
    def place(self) -> str:
        return f"stages.{self.spec.label}"

    def share(self, number: int) -> float:
        """What is left after so many rounds: every round keeps the same share of what the one before left."""
        return float(self.spec.keep ** (number / self.spec.steps))


def cut(job: Job, number: int, before: Entry | None) -> Entry:
    """Round `number` (1 is the first). before: what the round before trained.

    The entry holds the channel map and the weights that are left; its facts say what was chosen and what refused.
    """
    context, spec, inputs = job.context, job.spec, job.context.inputs
    known = versions()
    key = {
        "model": inputs.model_digest, "before": before.digest if before else None, "by": spec.by,
        "keep": job.share(number), "importance": spec.importance, "exclude": sorted(spec.exclude),
        "machine": machine_key(context) | {"batch": context.recipe.target.batch_sizes[0]},
        "calibration": inputs.splits.digests["calibration"],
        "train": inputs.splits.digests["train"] if spec.importance == "taylor" else None,
        "table": code_digest("compress.probe.width_table") if spec.by == "latency" else None,
        "code": [code_digest(f"compress.prune.{name}") for name in ("groups", "widths", "norms")],
        "versions": {name: known[name] for name in ("torch", "torch-pruning") if name in known},
    }  # fmt: skip
    return context.store.obtain("prune", key, lambda folder: _cut(job, job.share(number), before, folder))


def model_of(job: Job, made: Entry) -> "nn.Module":
    """The pruned module of an entry, in eval mode."""
    from compress.prune.replay import load_

    model = copy.deepcopy(job.context.inputs.model)
    load_(model, made.path)
    return model


def _cut(job: Job, share: float, before: Entry | None, folder: Path) -> dict[str, Any]:
    from compress.prune.counts import Counter
    from compress.prune.graph import Graph
    from compress.prune.importance import importance_of
    from compress.prune.norms import reestimate_
    from compress.prune.replay import replay_, save
    from compress.prune.widths import least_important

    context, inputs = job.context, job.context.inputs
    context.listener.update(0, 1, "trying every group of channels on a copy")
    found = _together(job, _groups(job))
    counter, graph = Counter(inputs.model, found.groups, inputs.feeds), Graph(inputs.model, inputs.feeds)
    gone = _take_over_(graph, before)
    loss = _loss(job) if job.spec.importance == "taylor" else None
    scores = importance_of(graph, found.groups, job.spec.importance, loss)
    chosen = _chosen(job, share, counter, scores)
    removed = least_important(scores, chosen.widths, gone)
    structure = _proved(job, found.groups, removed)
    pruned = copy.deepcopy(inputs.model)
    pruned.load_state_dict(graph.copy.state_dict(), strict=True)
    replay_(pruned, structure)
    norms = reestimate_(pruned, _calibration(job))
    save(folder, structure, pruned)
    return {
        "widths": chosen.widths, "whole": counter.whole, "cost": chosen.cost, "removed": removed, "norms": norms,
        "macs": counter.macs(chosen.widths), "params": counter.params(chosen.widths),
        "macs_share": counter.macs(chosen.widths) / counter.macs(counter.whole),
        "params_share": counter.params(chosen.widths) / counter.params(counter.whole),
        "refused": [[one.layer, one.reason] for one in found.refused],
    }  # fmt: skip


def _groups(job: Job) -> "Found":
    from compress.prune.groups import find_groups

    found = find_groups(job.context.inputs.model, job.context.inputs.feeds, job.spec.exclude)
    if not found.groups:
        reasons = "; ".join(f"{one.layer}: {one.reason}" for one in found.refused[:3])
        fact = f"no group of channels can be pruned ({reasons or 'the model has no convolution or Linear layer'})"
        raise InputError(job.place, fact, "Remove the stage")
    return found


def _together(job: Job, found: "Found") -> "Found":
    """Groups that are right one by one and also all at once; one that is not is refused, too."""
    from compress.prune.checks import refusal
    from compress.prune.groups import Found, Refused, reads_of, structure_of

    inputs, kept, refused = job.context.inputs, [*found.groups], [*found.refused]

    def reason(groups: "list[Group]") -> str:
        halves = {group.name: range(0, len(group.units) - 1, 2) for group in groups}
        structure = structure_of(inputs.model, groups, halves)
        return refusal(inputs.model, structure, reads_of(groups), inputs.feeds)

    if reason(kept):
        kept = []
        for group in found.groups:
            why = reason([*kept, group])
            if why:
                refused.append(Refused(layer=group.name, reason=f"together with the others: {why}"))
            else:
                kept.append(group)
    return Found(groups=tuple(kept), refused=tuple(refused))


def _take_over_(graph: "Graph", before: Entry | None) -> Mapping[str, list[int]]:
    """Put the trained weights in their places in the whole net, and say which units are gone already."""
    from safetensors.torch import load_file

    from compress.prune.replay import STRUCTURE, WEIGHTS, expand, read_structure

    if before is None:
        return {}
    tensors = read_structure(before.path / STRUCTURE).tensors
    trained = load_file(before.path / WEIGHTS)
    whole = graph.copy.state_dict()
    state = {name: expand(tensor, trained[name], tensors.get(name, {})) for name, tensor in whole.items()}
    graph.copy.load_state_dict(state, strict=True)
    removed: Mapping[str, list[int]] = before.facts["removed"]
    return removed


def _chosen(job: Job, share: float, counter: "Counter", scores: "Mapping[str, Scores]") -> "Chosen":
    """Widths for the recipe's wish. Raises InputError when it is out of reach."""
    from compress.prune.widths import by_one_ratio, by_time
    from compress.stages.prune_times import measured_table, round_to

    spec, step = job.spec, round_to(job.context)
    if spec.by == "latency":
        table = measured_table(job.context, job.model, job.context.inputs.model, counter, step)
        chosen = by_time(counter.groups, share, table.ms, scores, step)
    else:
        cost = counter.macs if spec.by == "macs" else counter.params
        chosen = by_one_ratio(counter.groups, share, cost, step)
    if chosen.cost > CLOSE_ENOUGH * share:
        least = math.ceil(100 * chosen.cost) / 100
        fact = f"{share:.2f} of the {spec.by} cannot be reached: {chosen.cost:.2f} stay at the narrowest widths"
        fact += ", because most of the time is not in layers that can be pruned" if spec.by == "latency" else ""
        remedy = (
            f"Write keep: {least:.2f} or more" if least < USELESS else "Pruning is of no use here: remove the stage"
        )
        raise InputError(f"{job.place}.keep", fact, remedy)
    return chosen


def _proved(job: Job, groups: "tuple[Group, ...]", removed: Mapping[str, list[int]]) -> "Structure":
    """The channel map, after pruned and masked model gave the same outputs on the model's own weights."""
    from compress.prune.checks import difference, refusal
    from compress.prune.groups import reads_of, structure_of

    inputs, reads = job.context.inputs, reads_of(groups)
    structure = structure_of(inputs.model, groups, removed)
    reason = difference(inputs.model, structure, reads, inputs.feeds) or refusal(
        inputs.model, structure, reads, inputs.feeds
    )
    if reason:
        raise InputError(job.place, f"the pruned model is not the masked one: {reason}", "Exclude layers")
    return structure


def _calibration(job: Job) -> Iterator[dict[str, Array]]:
    """Batches of at least two samples."""
    for feeds, _ in job.context.inputs.splits["calibration"].batches(NORM_BATCH):
        if len(next(iter(feeds.values()))) > 1:
            yield feeds


def _loss(job: Job) -> "LossOf":
    """Cross-entropy with the labels where outputs are classes; else the size of the outputs."""
    import numpy as np
    import torch
    from torch import Tensor, nn

    from compress.train.losses import run_named

    train = job.context.inputs.splits["train"]
    chosen = np.random.default_rng(job.context.recipe.seed).permutation(len(train))[:TAYLOR_SAMPLES]
    inputs, labels = train.read(np.sort(chosen))
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in inputs.items()}
    classes = isinstance(job.context.recipe.metric, str)

    def loss(model: nn.Module) -> Tensor:
        outputs = next(iter(run_named(model, tensors).values()))
        if classes:
            return nn.functional.cross_entropy(outputs, torch.from_numpy(np.ascontiguousarray(labels)))
        return outputs.square().mean()

    return loss
