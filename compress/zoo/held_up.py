"""Nets that no compression helps, each for a reason of its own: what the verdict is shown on."""

from torch import Tensor, nn
from torch.nn import functional

from compress.zoo.nets import conv_norm, finished

# Digits are 8x8; seven times as large, maps of 32 channels fill more than a first-level cache.
UPSCALE = 7
# Means over 4 x 4 cells of the map are what is classified.
CELLS = 4


def digits_deep(*, pretrained: bool = True) -> nn.Module:
    """60 narrow residual layers, images (n, 1, 8, 8) to logits (n, 10): starting an op costs more than its work."""
    return finished(Deep(features=64, width=32, depth=60, classes=10), "digits_deep", pretrained)


def digits_axial(*, pretrained: bool = True, folded: bool = False) -> nn.Module:
    """Filters along rows, then along columns by transposing, images (n, 1, 8, 8) to logits (n, 10).

    folded: the same function with the transposes folded into the kernels, which then are columns themselves.
    """
    net = finished(Axial(width=32, depth=3, pairs=2, kernel=3, classes=10), "digits_axial", pretrained)
    if folded:
        for block in net.modules():
            if isinstance(block, AxialPair):
                block.fold()
    return net


class Deep(nn.Module):
    """A chain of residual products and norms, each over before it is well started."""

    def __init__(self, *, features: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 1, height, width) of `features` pixels; returns logits (n, classes)."""
        features = self.first(images.flatten(1))
        for layer in self.layers:
            features = features + layer(features)
        return self.head(features)


class Axial(nn.Module):
    """A stem that enlarges its image, then blocks of `pairs` filters along rows and columns, and one over channels."""

    def __init__(self, *, width: int, depth: int, pairs: int, kernel: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(1, width, kernel=1), nn.ReLU())
        blocks = ([*(AxialPair(width, kernel) for _ in range(pairs)), _mix(width)] for _ in range(depth))
        self.body = nn.Sequential(*(layer for block in blocks for layer in block))
        # Two pixels of the image a cell: where a stroke lies tells digits apart.
        self.pool = nn.AvgPool2d(2 * UPSCALE)
        self.head = nn.Linear(width * CELLS**2, classes)

    def forward(self, images: Tensor) -> Tensor:
        """images: (n, 1, 8, 8); returns logits (n, classes)."""
        enlarged = functional.interpolate(images, scale_factor=float(UPSCALE), mode="nearest")
        return self.head(self.pool(self.body(self.stem(enlarged))).flatten(1))


class AxialPair(nn.Module):
    """One filter a channel along rows, one along columns.

    Written with one kind of kernel, (1, k), and transposes around the second, as a library without (k, 1) needs it.
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.rows = nn.Sequential(*_row_conv(width, kernel), nn.ReLU())
        self.columns = nn.Sequential(*_row_conv(width, kernel), nn.ReLU())
        self.folded = False

    def fold(self) -> None:
        """Turn the kernels of the second filter, so that its input need not be turned."""
        if self.folded:
            return
        filters = self.columns[0]
        if not isinstance(filters, nn.Conv2d):
            raise TypeError(f"the first part of `columns` is {type(filters).__name__}, not a convolution")
        turned = nn.Conv2d(
            filters.in_channels, filters.out_channels, (filters.kernel_size[1], 1),
            padding=(filters.kernel_size[1] // 2, 0), groups=filters.groups, bias=False,
        )  # fmt: skip
        turned.weight.data = filters.weight.data.transpose(2, 3).contiguous()
        self.columns[0] = turned
        self.folded = True

    def forward(self, maps: Tensor) -> Tensor:
        """maps: (n, width, height, width of the image); returns the same shape."""
        maps = self.rows(maps)
        if self.folded:
            return self.columns(maps)
        turned = self.columns(maps.transpose(2, 3).contiguous())
        return turned.transpose(2, 3).contiguous()


def _mix(width: int) -> nn.Module:
    return nn.Sequential(*conv_norm(width, width, kernel=1), nn.ReLU())


def _row_conv(width: int, kernel: int) -> list[nn.Module]:
    filters = nn.Conv2d(width, width, (1, kernel), padding=(0, kernel // 2), groups=width, bias=False)
    return [filters, nn.BatchNorm2d(width)]
