"""Small real models with their trained weights and their data: what recipes, tests and notebooks start from.

Importing this package costs nothing: torch and numpy are imported by the functions, where they are called.
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


def fashion_mnist(*, source: Literal["embedded", "debian"] = "embedded") -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """Fashion-MNIST (Xiao et al. 2017, MIT) as `train`, `calibration`, `select` and `confirm`.

    Each split is (images (n, 1, 28, 28) float32, labels (n,) int64); x = (pixel / 255 - 0.2860) / 0.3530.
    `embedded`: 9,000 / 1,000 / 5,000 / 5,000, shipped with the package. `debian`: 59,000 to train, the other splits the
    same; raises InputError where the apt package dataset-fashion-mnist is not installed, or the source is unknown.
    """
    from compress.zoo import sources

    return sources.fashion_mnist(source=source)


def digits() -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """Handwritten digits (UCI Optical Recognition of Handwritten Digits, CC BY 4.0), split 899 / 200 / 349 / 349.

    Each split, named as in `fashion_mnist`, is (images (n, 1, 8, 8) float32 in [0, 1], labels (n,) int64).
    """
    from compress.zoo import sources

    return sources.digits()


def fashion_resnet(*, pretrained: bool = True) -> "nn.Module":
    """Residual net of 0.83 M parameters, (n, 1, 28, 28) to logits (n, 10), in eval mode: int8 pays here."""
    from compress.zoo import nets

    return nets.fashion_resnet(pretrained=pretrained)


def fashion_mobile(*, pretrained: bool = True) -> "nn.Module":
    """Depthwise net of 23 k parameters, (n, 1, 28, 28) to logits (n, 10), in eval mode: int8 is not faster here."""
    from compress.zoo import nets

    return nets.fashion_mobile(pretrained=pretrained)


def digits_cnn(*, pretrained: bool = True) -> "nn.Module":
    """Residual net of 15 k parameters, (n, 1, 8, 8) to logits (n, 10), in eval mode: for unit tests."""
    from compress.zoo import nets

    return nets.digits_cnn(pretrained=pretrained)


def digits_encoder(*, pretrained: bool = True) -> "nn.Module":
    """Masked transformer encoder of 69 k parameters, (n, 1, 8, 8) to logits (n, 10), in eval mode."""
    from compress.zoo import nets

    return nets.digits_encoder(pretrained=pretrained)


def digits_deep(*, pretrained: bool = True) -> "nn.Module":
    """60 narrow layers, (n, 1, 8, 8) to logits (n, 10), in eval mode: all its time goes into starting ops."""
    from compress.zoo import held_up

    return held_up.digits_deep(pretrained=pretrained)


def digits_axial(*, pretrained: bool = True, folded: bool = False) -> "nn.Module":
    """Row and column filters, (n, 1, 8, 8) to logits (n, 10), in eval mode: much of its time goes into transposes.

    folded: the same function without a transpose, which is the remedy.
    """
    from compress.zoo import held_up

    return held_up.digits_axial(pretrained=pretrained, folded=folded)
