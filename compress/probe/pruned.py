"""A site with fewer channels: what structured pruning at a ratio leaves of its shape. Pure NumPy."""

from dataclasses import replace

from compress.probe.sites import Shape, Site, with_values

ROUND_TO = 8


def kept_channels(channels: int, ratio: float, round_to: int = ROUND_TO) -> int:
    """Channels left, rounded to the nearest multiple that kernels want, at least one multiple; few stay as they are."""
    if channels <= round_to:
        return channels
    return max(round_to, round(channels * (1 - ratio) / round_to) * round_to)


def pruned(site: Site, ratio: float) -> Site:
    """The site after pruning `ratio` of the channels of every layer.

    Inputs of the first layers and outputs of the last stay; depthwise convolutions keep one filter per channel;
    products of two computed tensors lose whole heads (axis 1 of four) and nothing where there are none.
    """
    if 1 not in site.constants:
        return _fewer_heads(site, ratio)
    return _convolution(site, ratio) if site.op == "Conv" else _product(site, ratio)


def _convolution(site: Site, ratio: float) -> Site:
    given, weight = site.shapes[0] or (), site.shapes[1] or ()
    groups = int(site.attributes.get("group", 1))
    inputs = given[1] if site.first else _in_groups(given[1], groups, ratio)
    # A filter per channel goes with its channel; other groups keep their number and get narrower.
    filters = weight[0] // groups
    groups_left = inputs if groups == given[1] else groups
    outputs = filters * groups_left if groups == given[1] else _in_groups(weight[0], groups, ratio)
    outputs = weight[0] if site.last else outputs
    shapes = {
        0: (given[0], inputs, *given[2:]),
        1: (outputs, inputs // groups_left, *weight[2:]),
        2: (outputs,),
    }
    output = (site.output[0], outputs, *site.output[2:])
    return _resized(replace(site, attributes={**site.attributes, "group": groups_left}), shapes, output)


def _product(site: Site, ratio: float) -> Site:
    given, weight = site.shapes[0] or (), site.shapes[1] or ()
    transposed = bool(site.attributes.get("transB"))
    inner, outer = (weight[-1], weight[-2]) if transposed else (weight[-2], weight[-1])
    inputs = inner if site.first else kept_channels(inner, ratio)
    outputs = outer if site.last else kept_channels(outer, ratio)
    pair = (outputs, inputs) if transposed else (inputs, outputs)
    place = 0 if site.attributes.get("transA") else len(given) - 1
    shapes = {
        0: tuple(inputs if axis == place else size for axis, size in enumerate(given)),
        1: (*weight[:-2], *pair),
        2: (outputs,),
    }
    return _resized(site, shapes, (*site.output[:-1], outputs))


def _fewer_heads(site: Site, ratio: float) -> Site:
    shapes = site.shapes
    if any(shape is None or len(shape) != 4 or shape[1] != site.output[1] for shape in shapes):
        return site
    heads = max(1, round(site.output[1] * (1 - ratio)))
    left = tuple((shape[0], heads, *shape[2:]) for shape in shapes if shape is not None)
    return replace(site, shapes=left, output=(site.output[0], heads, *site.output[2:]))


def _in_groups(channels: int, groups: int, ratio: float) -> int:
    """Channels left that still divide into the groups."""
    if groups in (1, channels):
        return kept_channels(channels, ratio)
    return groups * max(1, round(channels / groups * (1 - ratio)))


def _resized(site: Site, shapes: dict[int, Shape], output: Shape) -> Site:
    there = tuple(None if old is None else shapes.get(i, old) for i, old in enumerate(site.shapes))
    constants = {i: with_values(site, i, there[i] or ()) for i in site.constants}
    return replace(site, shapes=there, constants=constants, output=output)
