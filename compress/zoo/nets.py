"""The nets of the zoo, in plain torch. None looks at its data to decide what to do, and none knows its batch size.

Each factory returns the module in eval mode; with `pretrained` it carries the weights that `compress.zoo.train` made.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

WEIGHTS = Path(__file__).parent / "weights"


def fashion_resnet(*, pretrained: bool = True) -> nn.Module:
    """Residual net, images (n, 1, 28, 28) to logits (n, 10): dense convolutions, so int8 has work to save."""
    return finished(ResNet(stem=16, widths=(96, 128), blocks=2, classes=10), "fashion_resnet", pretrained)


def fashion_mobile(*, pretrained: bool = True) -> nn.Module:
    """Depthwise net, images (n, 1, 28, 28) to logits (n, 10): little arithmetic per byte, so int8 is not faster."""
    return finished(MobileNet(classes=10), "fashion_mobile", pretrained)


def digits_cnn(*, pretrained: bool = True) -> nn.Module:
    """Tiny net with one residual, images (n, 1, 8, 8) to logits (n, 10): what unit tests use."""
    return finished(ResNet(stem=16, widths=(32,), blocks=1, classes=10), "digits_cnn", pretrained)


def digits_encoder(*, pretrained: bool = True) -> nn.Module:
    """Transformer encoder, images (n, 1, 8, 8) read as 8 tokens of 8 features, to logits (n, 10)."""
    return finished(Encoder(features=8, rows=8, width=64, depth=2, classes=10), "digits_encoder", pretrained)


def finished(net: nn.Module, name: str, pretrained: bool) -> nn.Module:
    """The net in eval mode, with its shipped weights where `pretrained`."""
    if pretrained:
        net.load_state_dict(load_file(WEIGHTS / f"{name}.safetensors"), strict=True)
    return net.eval()


class ResNet(nn.Module):
    """A narrow stem at full resolution, then `blocks` basic blocks per width; every stage halves the image.

    The stem is narrow because that is where int8 saves least: one input channel, and the largest maps to write.
    """

    def __init__(self, *, stem: int, widths: tuple[int, ...], blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(1, stem, kernel=3), nn.ReLU())
        layers: list[nn.Module] = []
        previous = stem
        for width in widths:
            for block in range(blocks):
                layers.append(BasicBlock(previous, width, stride=1 if block else 2))
                previous = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(previous, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 1, height, width); returns logits (n, classes)."""
        return self.head(self.body(self.stem(images)).mean(dim=(2, 3)))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al. 2016, figure 5 left)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*conv_norm(inputs, outputs, kernel=3, stride=stride), nn.ReLU())
        self.second = nn.Sequential(*conv_norm(outputs, outputs, kernel=3))
        changes = stride != 1 or inputs != outputs
        self.shortcut: nn.Module = (
            nn.Sequential(*conv_norm(inputs, outputs, kernel=1, stride=stride)) if changes else nn.Identity()
        )

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, inputs, height, width); returns (n, outputs, height / stride, width / stride)."""
        return functional.relu(self.second(self.first(images)) + self.shortcut(images))


class MobileNet(nn.Module):
    """Inverted bottlenecks at half the usual widths (Sandler et al. 2018, table 2, cut down to 28x28 images)."""

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(1, 16, kernel=3), nn.ReLU6())
        self.body = nn.Sequential(
            InvertedBottleneck(16, 8, expansion=1, stride=1),
            InvertedBottleneck(8, 16, expansion=4, stride=2),
            InvertedBottleneck(16, 16, expansion=4, stride=1),
            InvertedBottleneck(16, 32, expansion=4, stride=2),
            InvertedBottleneck(32, 32, expansion=4, stride=1),
        )
        self.last = nn.Sequential(*conv_norm(32, 96, kernel=1), nn.ReLU6())
        self.head = nn.Linear(96, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 1, 28, 28); returns logits (n, classes)."""
        return self.head(self.last(self.body(self.stem(images))).mean(dim=(2, 3)))


class InvertedBottleneck(nn.Module):
    """Widen with 1x1, filter each channel with 3x3, narrow with 1x1; a shortcut where shapes allow one."""

    def __init__(self, inputs: int, outputs: int, *, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [*conv_norm(inputs, wide, kernel=1), nn.ReLU6()] if expansion > 1 else []
        depthwise = [*conv_norm(wide, wide, kernel=3, stride=stride, groups=wide), nn.ReLU6()]
        self.path = nn.Sequential(*widen, *depthwise, *conv_norm(wide, outputs, kernel=1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, inputs, height, width); returns (n, outputs, height / stride, width / stride)."""
        return images + self.path(images) if self.adds else self.path(images)


class Encoder(nn.Module):
    """Rows of an image as tokens, two places of padding behind them, masked the way text encoders mask theirs.

    The mask is added to the scores as the lowest float32, so anything that quantizes that sum by its range loses every
    score: the trap that text encoders set for naive int8, here in a net of 69 thousand parameters.
    """

    padding = 2

    def __init__(self, *, features: int, rows: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.position = nn.Parameter(torch.randn(rows + self.padding, width) * 0.02)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads=4) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 1, rows, features); returns logits (n, classes)."""
        rows = images[:, 0]
        mask = functional.pad(torch.ones_like(rows[:, :, 0]), (0, self.padding))
        # 0 where a token stands, the lowest float32 where padding stands; (n, 1, 1, tokens) for all heads and queries
        bias = (1.0 - mask)[:, None, None, :] * torch.finfo(torch.float32).min
        tokens = functional.pad(self.embed(rows), (0, 0, 0, self.padding)) + self.position
        for block in self.blocks:
            tokens = block(tokens, bias)
        present = mask[:, :, None]
        return self.head((self.norm(tokens) * present).sum(dim=1) / present.sum(dim=1))


class EncoderBlock(nn.Module):
    """Pre-norm attention and feed-forward, each beside a shortcut."""

    def __init__(self, width: int, *, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        """tokens: (n, tokens, width); bias: (n, 1, 1, tokens), added to the scores; returns (n, tokens, width)."""
        tokens = tokens + self._attend(self.attention_norm(tokens), bias)
        return tokens + self.feed(self.feed_norm(tokens))

    def _attend(self, tokens: Tensor, bias: Tensor) -> Tensor:
        query, key, value = (self._split(project(tokens)) for project in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5 + bias
        mixed = torch.softmax(scores, dim=-1) @ value
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, tokens: Tensor) -> Tensor:
        """(n, tokens, width) to (n, heads, tokens, width / heads)."""
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


def conv_norm(inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size of its map (but for the stride), without bias, and the norm behind it."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]
