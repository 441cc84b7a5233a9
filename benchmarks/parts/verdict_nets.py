"""Nets beside the zoo's, each limited by something else, and narrow versions of all. Untrained: only times matter."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from compress.zoo.nets import Encoder, InvertedBottleneck, MobileNet, ResNet

GROUPS = 4


class WideMlp(nn.Module):
    """Three square products, tokens (n, 1, width) to (n, 1, width): at batch 1 all the time goes into weights."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.body(tokens)


class TinyLayers(nn.Module):
    """60 products of 32 x 32, each with a norm and a shortcut, (n, 64) to (n, 10): kernels over before they start."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(60))

    def forward(self, features: Tensor) -> Tensor:
        features = self.first(features)
        for block in self.blocks:
            features = features + block(features)
        return self.last(features)


class ShuffleNet(nn.Module):
    """Grouped 1x1 convolutions between copies of their maps, (n, 1, 56, 56) to (n, 10): channels are shuffled (Zhang
    et al. 2018, figure 1) and rows become columns."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 1, groups=GROUPS) for _ in range(6))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.relu(self.stem(images))
        for conv in self.convs:
            grouped = functional.relu(conv(maps)).unflatten(1, (GROUPS, -1))
            maps = grouped.transpose(1, 2).flatten(1, 2).transpose(2, 3).contiguous()
        return self.head(maps.mean(dim=(2, 3)))


class Recurrent(nn.Module):
    """Two layers of LSTM, sequences (n, 16, 64) to (n, 10)."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(64, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(tokens)[0][:, -1])


def narrow_resnet() -> nn.Module:
    """`fashion_resnet` with half its channels."""
    return ResNet(stem=8, widths=(48, 64), blocks=2, classes=10)


def narrow_cnn() -> nn.Module:
    """`digits_cnn` with half its channels."""
    return ResNet(stem=8, widths=(16,), blocks=1, classes=10)


def narrow_mobile() -> nn.Module:
    """`fashion_mobile` with half of all channels, in tiles of 8: where 8 were, 8 are left."""
    net = MobileNet(classes=10)
    net.stem = _conv_norm(1, 8, kernel=3)
    net.body = nn.Sequential(
        InvertedBottleneck(8, 8, expansion=1, stride=1),
        InvertedBottleneck(8, 8, expansion=2, stride=2),
        InvertedBottleneck(8, 8, expansion=4, stride=1),
        InvertedBottleneck(8, 16, expansion=4, stride=2),
        InvertedBottleneck(16, 16, expansion=4, stride=1),
    )
    net.last = _conv_norm(16, 48, kernel=1)
    net.head = nn.Linear(48, 10)
    return net


def _conv_norm(inputs: int, outputs: int, *, kernel: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6())


def narrow_encoder() -> nn.Module:
    """`digits_encoder` with half its width and heads."""
    net = Encoder(features=8, rows=8, width=32, depth=2, classes=10)
    for block in net.blocks:
        block.heads = 2
    return net


def shallow_encoder() -> nn.Module:
    """`digits_encoder` with one block of two."""
    return Encoder(features=8, rows=8, width=64, depth=1, classes=10)


def seeded(net: nn.Module) -> nn.Module:
    """The net in eval mode with standard normal weights of a fixed seed, scaled by their inputs; norms stay."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim > 1:
                spread = weight[0].numel() ** -0.5
                weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    return net.eval()
