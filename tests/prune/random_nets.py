"""Nets drawn at random from every kind of structure that pruning meets: a net is a list of names, so it can shrink."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, SIDE = 8, 6


class Skip(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Join(nn.Module):
    """Two branches concatenated, then mixed back to as many channels."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(WIDTH, 6, 3, padding=1), nn.Conv2d(WIDTH, 10, 1)
        self.mix = nn.Conv2d(16, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(functional.relu(torch.cat([self.left(x), self.right(x)], 1)))


class Gate(nn.Module):
    """A convolution taken apart: by chunk into equal halves, or by split into a third and the rest."""

    def __init__(self, *, equal: bool) -> None:
        super().__init__()
        self.equal = equal
        self.wide = nn.Conv2d(WIDTH, 16 if equal else 12, 1)
        self.back = nn.Conv2d(8, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.equal:
            gate, value = self.wide(x).chunk(2, 1)
            return self.back(torch.sigmoid(gate) * value)
        scale, value = self.wide(x).split([4, 8], 1)
        return self.back(value * scale.mean(1, keepdim=True))


class Shuffle(nn.Module):
    """Two groups of channels, taken in turns, between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(WIDTH, 12, 1), nn.Conv2d(12, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.before(x))
        n, channels, height, width = x.shape
        return self.after(
            x.view(n, 2, channels // 2, height, width).transpose(1, 2).reshape(n, channels, height, width)
        )


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of a map."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Attend(nn.Module):
    """Attention over the places of a map, heads counted by an attribute; or torch's own module."""

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        self.heads, self.own = 2, own
        if own:
            self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        else:
            self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        if not self.own:
            return x + self.attention(tokens, tokens, tokens)[0].transpose(1, 2).reshape(x.shape)
        n, places, _ = tokens.shape
        parts = (
            layer(tokens).view(n, places, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(n, places, -1)
        return x + self.out(mixed).transpose(1, 2).reshape(x.shape)


class Recur(nn.Module):
    """A recurrent layer over the places of a map."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell = kind(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x.flatten(2).transpose(1, 2))[0].transpose(1, 2).reshape(x.shape)


class Feed(nn.Module):
    """Linear, GELU, Linear on every place."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 20), nn.Linear(20, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x.permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


# Each keeps (n, WIDTH, SIDE, SIDE).
BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
    "grouped": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=2),
    "depthwise": lambda: nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH),
    "multiplied": lambda: nn.Sequential(
        nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1, groups=WIDTH), nn.Conv2d(16, WIDTH, 1)
    ),
    "transposed": lambda: nn.ConvTranspose2d(WIDTH, WIDTH, 3, padding=1),
    "transposed grouped": lambda: nn.ConvTranspose2d(WIDTH, WIDTH, 3, padding=1, groups=2),
    "batch norm": lambda: nn.BatchNorm2d(WIDTH),
    "group norm": lambda: nn.GroupNorm(2, WIDTH),
    "instance norm": lambda: nn.InstanceNorm2d(WIDTH, affine=True),
    "layer norm": ChannelNorm,
    "prelu": lambda: nn.PReLU(WIDTH),
    "relu": nn.ReLU,
    "pooling": lambda: nn.MaxPool2d(3, stride=1, padding=1),
    "residual": lambda: Skip(nn.Sequential(nn.Conv2d(WIDTH, 12, 1), nn.ReLU(), nn.Conv2d(12, WIDTH, 1))),
    "concat": Join,
    "chunk": lambda: Gate(equal=True),
    "split": lambda: Gate(equal=False),
    "shuffle": Shuffle,
    "attention": lambda: Attend(own=True),
    "torch attention": lambda: Attend(own=False),
    "linear": Feed,
    "lstm": lambda: Recur(nn.LSTM),
    "gru": lambda: Recur(nn.GRU),
}


class RandomNet(nn.Module):
    """A stem, the blocks that were drawn, and a classifier behind an average or a flatten."""

    def __init__(self, blocks: Sequence[str], *, flatten: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.body = nn.Sequential(*(BLOCKS[name]() for name in blocks))
        self.flatten = flatten
        self.hidden = nn.Linear(WIDTH * SIDE * SIDE if flatten else WIDTH, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(x))
        return self.head(functional.relu(self.hidden(x.flatten(1) if self.flatten else x.mean((2, 3)))))
