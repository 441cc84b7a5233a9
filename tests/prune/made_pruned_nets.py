"""Small nets, one of each kind of structure that pruning meets."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head((x + self.body(x)).mean((2, 3)))


class Joined(nn.Module):
    """Two branches, concatenated."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 6, 3), nn.Conv2d(3, 10, 3)
        self.mix, self.head = nn.Conv2d(16, 8, 1), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.cat([self.left(x), self.right(x)], 1)
        return self.head(torch.relu(self.mix(x)).mean((2, 3)))


class Halves(nn.Module):
    """One convolution whose channels are taken apart."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3), nn.Linear(8, 4)

    def forward(self, x):
        gate, value = self.stem(x).chunk(2, 1)
        return self.head((torch.sigmoid(gate) * value).mean((2, 3)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(self.second(torch.relu(self.first(x))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Linear(6, 8), nn.LSTM(8, 10, batch_first=True), nn.Linear(10, 4)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 4
        self.query, self.key, self.value, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = (
            layer(x).reshape(n, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        x = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, -1)
        return self.head(self.out(x).mean(1))


def chain(*layers: nn.Module) -> nn.Sequential:
    """Layers on (n, 3, 8, 8), then an average over the places and a classifier of 16 inputs."""
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def plain() -> nn.Sequential:
    return chain(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 16, 3), nn.ReLU())


def depthwise() -> nn.Sequential:
    return chain(
        nn.Conv2d(3, 12, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, groups=12), nn.BatchNorm2d(12), nn.Conv2d(12, 16, 1)
    )


def grouped() -> nn.Sequential:
    return chain(nn.Conv2d(3, 12, 1), nn.ReLU(), nn.Conv2d(12, 12, 3, groups=3), nn.ReLU(), nn.Conv2d(12, 16, 1))


def transposed() -> nn.Sequential:
    return chain(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.ConvTranspose2d(12, 10, 3), nn.ReLU(), nn.Conv2d(10, 16, 1))


def group_norm() -> nn.Sequential:
    return chain(nn.Conv2d(3, 12, 3), nn.GroupNorm(4, 12), nn.ReLU(), nn.Conv2d(12, 16, 1))


def flattened() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 8), nn.ReLU(), nn.Linear(8, 4))


def layer_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
