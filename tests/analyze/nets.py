"""Compact image networks, written for these tests, with the sizes of the published ones."""

from collections.abc import Callable

import torch
from torch import nn


def _conv(cin: int, cout: int, k: int, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] | None = nn.ReLU):
    layers = [nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """y = act(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where shapes change, unless `plain`."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None, act: bool):
        super().__init__()
        self.body, self.shortcut, self.act = body, shortcut, nn.ReLU() if act else nn.Identity()

    def forward(self, x):
        y = self.body(x)
        return self.act(y + (x if self.shortcut is None else self.shortcut(x)))


def _res_block(cin: int, width: int, stride: int, deep: bool) -> tuple[nn.Module, int]:
    cout = width * 4 if deep else width
    if deep:
        body = nn.Sequential(_conv(cin, width, 1), _conv(width, width, 3, stride), _conv(width, cout, 1, act=None))
    else:
        body = nn.Sequential(_conv(cin, width, 3, stride), _conv(width, cout, 3, act=None))
    same = stride == 1 and cin == cout
    return Residual(body, None if same else _conv(cin, cout, 1, stride, act=None), act=True), cout


def resnet(depths: tuple[int, ...], deep: bool) -> nn.Sequential:
    """ResNet v1.5: the 3x3 convolution carries the stride."""
    layers: list[nn.Module] = [_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            block, channels = _res_block(channels, 64 << stage, 2 if stage and not place else 1, deep)
            layers.append(block)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def resnet18() -> nn.Sequential:
    return resnet((2, 2, 2, 2), deep=False)


def resnet50() -> nn.Sequential:
    return resnet((3, 4, 6, 3), deep=True)


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        scale = self.down(x.mean((2, 3), keepdim=True))
        return x * self.up(nn.functional.silu(scale)).sigmoid()


def _inverted(cin: int, cout: int, expand: int, k: int, stride: int, act: Callable[[], nn.Module], squeeze: bool):
    wide = cin * expand
    layers = [_conv(cin, wide, 1, act=act)] if expand > 1 else []
    layers.append(_conv(wide, wide, k, stride, groups=wide, act=act))
    layers += [SqueezeExcite(wide, cin // 4)] if squeeze else []
    body = nn.Sequential(*layers, _conv(wide, cout, 1, act=None))
    return Residual(body, None, act=False) if stride == 1 and cin == cout else body


def _mobile(first: int, last: int, rows: tuple[tuple[int, int, int, int, int], ...], act, squeeze: bool):
    layers, channels = [_conv(3, first, 3, 2, act=act)], first
    for expand, cout, repeats, stride, k in rows:
        for place in range(repeats):
            layers.append(_inverted(channels, cout, expand, k, stride if place == 0 else 1, act, squeeze))
            channels = cout
    head = [_conv(channels, last, 1, act=act), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, *head, nn.Linear(last, 1000))


def mobilenet_v2() -> nn.Sequential:
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    return _mobile(32, 1280, tuple((*row, 3) for row in rows), nn.ReLU6, squeeze=False)


def efficientnet_b0() -> nn.Sequential:
    rows = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )
    return _mobile(32, 1280, rows, nn.SiLU, squeeze=True)


class ViT(nn.Module):
    """ViT-B/16 by default. x: (n, 3, 224, 224)."""

    def __init__(self, width: int = 768, depth: int = 12, heads: int = 12, patch: int = 16, size: int = 224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        options = {"activation": "gelu", "batch_first": True, "norm_first": True}
        blocks = [nn.TransformerEncoderLayer(width, heads, 4 * width, **options) for _ in range(depth)]
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])
