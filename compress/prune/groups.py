"""Groups of channels that go together, found by torch-pruning's dependency graph and each proved on a copy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import nn
from torch.nn.modules.conv import _ConvNd

from compress.errors import InputError
from compress.prune.checks import Axis, Feeds, refusal
from compress.prune.classes import Classes, Units
from compress.prune.graph import Graph
from compress.prune.heads import Settings, as_heads
from compress.prune.layers import UnknownLayerError, held_by, tied_size, ties
from compress.prune.replay import Structure
from compress.prune.time_limit import TooSlowError

# Coupled channels are looked for one by one up to this width.
MOST_CLOSURES = 1024


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The places along `dim` of `tensor` that go with a channel of the group's first layer.

    positions, roots: (n,) in pairs: position goes when root goes; reads: the layer takes these channels in.
    """

    tensor: str
    dim: int
    positions: tuple[int, ...] = field(repr=False)
    roots: tuple[int, ...] = field(repr=False)
    reads: bool = False

    @property
    def axis(self) -> Axis:
        return (self.tensor, self.dim)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Channels of several layers that go together, in units that go whole.

    name: of the first layer; units: its channels by unit; settings: numbers of the user's modules that count them.
    """

    name: str
    channels: int
    units: Units = field(repr=False)
    cuts: tuple[Cut, ...] = field(repr=False)
    settings: Settings = ()

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cut.tensor.rpartition(".")[0] for cut in self.cuts))


@dataclass(frozen=True, kw_only=True)
class Refused:
    layer: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Found:
    groups: tuple[Group, ...]
    refused: tuple[Refused, ...]


def find_groups(model: nn.Module, feeds: Feeds, exclude: Sequence[str] = ()) -> Found:
    """Every group that can be pruned, and every layer that cannot, with the reason.

    feeds: one batch (n, ...) by input name, real samples; exclude: names of layers to leave whole. The model is not
    touched. Raises InputError for a model without trainable parameters and for an unknown layer in `exclude`.
    """
    _check(model, exclude)
    try:
        graph = Graph(model, feeds)
    except (Exception, TooSlowError) as error:  # torch-pruning fails in many ways on what it does not know
        reason = f"dependencies cannot be followed ({type(error).__name__}: {str(error)[:120]})"
        return Found(groups=(), refused=tuple(Refused(layer=name, reason=reason) for name, _ in roots_of(model)))
    groups: list[Group] = []
    refused: list[Refused] = []
    settled: set[str] = set()
    for name, layer in roots_of(model):
        if name in settled:
            continue
        group, reason = _group(graph, name, layer, exclude)
        together = {name, *(_covered(model, group) if group else ())}
        settled |= together
        if group is not None and not reason:
            groups.append(group)
            continue
        refused.append(Refused(layer=name, reason=reason))
        refused += [Refused(layer=one, reason=f"it goes with {name}: {reason}") for one in sorted(together - {name})]
    return Found(groups=tuple(groups), refused=tuple(refused))


def roots_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that make channels."""
    for name, layer in model.named_modules():
        if isinstance(layer, _ConvNd | nn.Linear):
            yield name, layer


def structure_of(model: nn.Module, groups: Sequence[Group], removed: Mapping[str, Sequence[int]]) -> Structure:
    """The channel map that is left when units (by number) are removed from groups (by name)."""
    gone: dict[Axis, set[int]] = {}
    settings: dict[str, dict[str, int]] = {}
    for group in groups:
        units = removed.get(group.name, ())
        if not units:
            continue
        roots = {root for unit in units for root in group.units[unit]}
        for cut in group.cuts:
            places = {position for position, root in zip(cut.positions, cut.roots, strict=True) if root in roots}
            gone.setdefault(cut.axis, set()).update(places)
        left = len(group.units) - len(set(units))
        for path, attribute, value in group.settings:
            settings.setdefault(path, {})[attribute] = value * left // len(group.units)
    shapes = {name: tensor.shape for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    tensors: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, dim), places in sorted(gone.items()):
        if places:
            tensors.setdefault(name, {})[dim] = tuple(one for one in range(shapes[name][dim]) if one not in places)
    return Structure(tensors=tensors, settings=settings)


def reads_of(groups: Sequence[Group]) -> set[Axis]:
    return {cut.axis for group in groups for cut in group.cuts if cut.reads}


def _group(graph: Graph, name: str, layer: nn.Module, exclude: Sequence[str]) -> tuple[Group | None, str]:
    """The first way to prune a layer's outputs that passes the trial; or its channels, if known, and why it may not."""
    try:
        plain = _plain(graph, name, layer)
    except UnknownLayerError as error:
        return None, str(error)
    except (Exception, TooSlowError) as error:
        return None, f"its dependencies cannot be followed ({type(error).__name__}: {str(error)[:120]})"
    reason = _barred(graph.model, plain, exclude)
    if reason:
        return plain, reason
    reasons = []
    for group in _ways(graph, plain):
        reason = _trial(graph, group)
        if not reason:
            return group, ""
        reasons.append(reason)
    return plain, _with_norms(graph.model, plain, reasons[0])


def _plain(graph: Graph, name: str, layer: nn.Module) -> Group:
    """The group as torch-pruning tells it, in the smallest units that the layers' own structure allows."""
    channels = int(getattr(layer, "out_channels", 0) or getattr(layer, "out_features", 0))
    items = graph.group(name, range(channels))
    cuts, classes = [], Classes(channels)
    for place in range(len(items)):
        item = items[place]
        module, positions, roots = item.dep.target.module, list(item.idxs), list(items[place].root_idxs)
        if isinstance(module, nn.Parameter):
            owner = next(key for key, value in graph.copy.named_parameters() if value is module)
            cuts.append(_cut(owner, int(item.dep.target.pruning_dim), positions, roots, reads=False))
            continue
        if module not in graph.names:
            continue  # an operation without tensors
        if not 0 <= min(positions) <= max(positions):
            raise UnknownLayerError(f"it feeds {graph.names[module]}, which takes part of it in an unknown way")
        role = graph.role(item.dep)
        for held in held_by(module, role):
            own = [position % held.period for position in positions] if held.period else positions
            path = f"{graph.names[module]}.{held.tensor}"
            cuts.append(_cut(path, held.dim, own, roots, reads=role == "in"))
        classes.join(ties(module, role, positions), roots, tied_size(module, role))
    return Group(name=name, channels=channels, units=classes.units(), cuts=tuple(cuts))


def _cut(tensor: str, dim: int, positions: Sequence[int], roots: Sequence[int], *, reads: bool) -> Cut:
    return Cut(tensor=tensor, dim=dim, positions=tuple(positions), roots=tuple(roots), reads=reads)


def _ways(graph: Graph, plain: Group) -> Iterator[Group]:
    """Ways to prune a group, from fine to coarse: single channels, whole heads, channels that depend on one another."""
    if len(plain.units) > 1:
        yield plain
    for units, settings in as_heads(graph.model, plain.name, plain.channels):
        yield replace(plain, units=units, settings=settings)
    coupled = _coupled(graph, plain)
    if 1 < len(coupled) < len(plain.units):
        yield replace(plain, units=coupled)


def _coupled(graph: Graph, plain: Group) -> Units:
    """Units from asking for every channel alone, and taking what else goes from the first layer with it."""
    if plain.channels > MOST_CLOSURES:
        return ()
    classes = Classes(plain.channels)
    for unit in plain.units:
        classes.join([0] * len(unit), list(unit), len(unit))
    for channel in range(plain.channels):
        try:
            items = graph.group(plain.name, [channel])
        except (Exception, TooSlowError):
            return ()
        root = items[0].dep.target.module
        together = {
            one
            for item in items
            if item.dep.target.module is root and graph.role(item.dep) != "in"
            for one in item.idxs
        }
        classes.join([0] * len(together), sorted(together), len(together))
    return classes.units()


def _barred(model: nn.Module, group: Group, exclude: Sequence[str]) -> str:
    """Why a group may not be touched, whatever a trial says; empty when it may."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    owners: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        owners.setdefault(id(parameter), []).append(name)
    known = {*parameters, *(name for name, _ in model.named_buffers())}
    for cut in group.cuts:
        layer = cut.tensor.rpartition(".")[0]
        if cut.tensor not in known:
            return f"'{cut.tensor}' is computed from other tensors"
        if any(layer == one or layer.startswith(f"{one}.") for one in exclude):
            return (
                f"{layer} is excluded by the recipe"
                if layer == group.name
                else f"it goes with {layer}, which is excluded"
            )
        if cut.tensor not in parameters:
            continue
        held = parameters[cut.tensor]
        if len(owners[id(held)]) > 1:
            return f"its weights are tied: {' and '.join(owners[id(held)])} are one tensor"
        if not held.requires_grad:
            return f"{layer} is frozen (takes no gradients)"
    if not group.units:
        return "its channels are tied to those of other layers"
    if len(group.units) == 1 and group.channels > 1:
        return "a grouped layer ties all its channels together"
    return "it has one channel" if group.channels < 2 else ""


def _trial(graph: Graph, group: Group) -> str:
    """Cut half of the units away on a copy, and the same with one unit. Empty when both equal the masked model."""
    for removed in (range(0, len(group.units) - 1, 2), [len(group.units) - 1]):
        structure = structure_of(graph.model, [group], {group.name: list(removed)})
        reason = refusal(graph.model, structure, reads_of([group]), graph.feeds)
        if reason:
            return reason
    return ""


def _with_norms(model: nn.Module, group: Group, reason: str) -> str:
    """A norm over channels explains a difference better than its size."""
    for name in group.layers:
        layer = model.get_submodule(name) if name else model
        if isinstance(layer, nn.LayerNorm | nn.GroupNorm) and "differ" in reason:
            return f"{type(layer).__name__} {name} averages over its channels: {reason}"
    return reason


def _covered(model: nn.Module, group: Group) -> Iterator[str]:
    """Layers all of whose output channels belong to the group."""
    for cut in group.cuts:
        name, _, tensor = cut.tensor.rpartition(".")
        if not cut.reads and tensor == "weight":
            layer = model.get_submodule(name)
            outputs = getattr(layer, "out_channels", getattr(layer, "out_features", None))
            if outputs is not None and len(cut.positions) == outputs:
                yield name


def _check(model: nn.Module, exclude: Sequence[str]) -> None:
    if not any(parameter.requires_grad for parameter in model.parameters()):
        fact = "the model has no trainable parameter"
        raise InputError("stages.prune", fact, "Set requires_grad on what may be pruned")
    known = {name for name, _ in model.named_modules()}
    for name in exclude:
        if name not in known:
            shown = ", ".join(layer for layer, _ in list(roots_of(model))[:6])
            raise InputError("stages.prune.exclude", f"no layer '{name}' in the model", f"Layers are {shown}, ...")
