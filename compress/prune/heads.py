"""Attention heads as units: which numbers of the user's modules count them."""

from collections.abc import Iterator

from torch import nn

# (module, attribute, value): numbers that shrink in proportion to the units that are left.
Settings = tuple[tuple[str, str, int], ...]
HEADS = ("heads", "num_heads", "n_heads", "nhead", "n_head", "num_attention_heads")
WIDTHS = ("all_head_size", "inner_dim", "attention_width", "embed_dim", "hidden_size", "width", "dim")


def as_heads(model: nn.Module, layer: str, channels: int) -> Iterator[tuple[tuple[tuple[int, ...], ...], Settings]]:
    """Units of one head each, for every number of heads that a module around the layer holds, with what counts them.

    channels: outputs of the layer, a multiple of the heads.
    """
    path = layer
    while path:
        path = path.rpartition(".")[0]
        module = model.get_submodule(path) if path else model
        numbers = {key: value for key, value in vars(module).items() if type(value) is int}
        for attribute, heads in numbers.items():
            if attribute not in HEADS or heads < 2 or channels % heads:
                continue
            size = channels // heads
            units = tuple(tuple(range(head * size, (head + 1) * size)) for head in range(heads))
            counted = ((path, attribute, heads),)
            widths = tuple((path, key, numbers[key]) for key in WIDTHS if numbers.get(key) == channels)
            yield units, counted
            if widths:
                yield units, counted + widths
