"""Small real models with their trained weights and their data: what recipes, tests and notebooks start from.

Importing this package costs nothing: torch and numpy are imported by the functions, where they are called.
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from compress.zoo.efficientnet import Enlarged


def fashion_mnist(*, source: Literal["embedded", "debian"] = "embedded") -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """Fashion-MNIST (Xiao et al. 2017, MIT) as `train`, `calibration`, `select` and `confirm`.

    Each split is (images (n, 1, 28, 28) float32, labels (n,) int64); x = (pixel / 255 - 0.2860) / 0.3530.
    `embedded`: 9,000 / 1,000 / 5,000 / 5,000, shipped with the package. `debian`: 59,000 to train, the other splits the
    same; raises InputError where the apt package dataset-fashion-mnist is not installed, or the source is unknown.
    """
    from compress.zoo import sources

    return sources.fashion_mnist(source=source)


def digits() -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """Handwritten digits (UCI Optical Recognition of Handwritten Digits, from scikit-learn), 899 / 200 / 349 / 349.

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


def efficientnet_fashion(*, pretrained: bool = True) -> "nn.Module":
    """EfficientNet-Lite0 (3.4 M parameters, ImageNet weights) with a head for Fashion-MNIST fitted here, in eval mode.

    (n, 3, 96, 96) to logits (n, 10); any multiple of 32 will do for height and width. Naive int8 really fails here.
    Raises EnvironmentProblem where the extra `vision-pretrained` is not installed; `pretrained=False` needs no extra.
    """
    from compress.zoo import efficientnet

    return efficientnet.efficientnet_fashion(pretrained=pretrained)


def efficientnet_data() -> "dict[str, Enlarged]":
    """Fashion-MNIST enlarged to what EfficientNet-Lite0 takes; splits as in `fashion_mnist`, each a dataset.

    A sample is (image (3, 96, 96) float32, label); x = (pixel - 127) / 128, the three channels alike.
    """
    from compress.zoo import efficientnet

    return efficientnet.efficientnet_data()


def minilm_sentiment(*, pretrained: bool = True) -> "nn.Module":
    """MiniLM-L6-v2 (22.6 M parameters) with a head for negative and positive fitted here, in eval mode.

    input_ids (n, tokens) and attention_mask (n, tokens), int64, to logits (n, 2). Int8 is faster here, and the mask
    breaks it where ranges are taken naively. Raises EnvironmentProblem where the extra `nlp` is not installed.
    """
    from compress.zoo import minilm

    return minilm.minilm_sentiment(pretrained=pretrained)


def minilm_data() -> "dict[str, tuple[dict[str, np.ndarray], np.ndarray]]":
    """Rated film-review sentences (Hutto and Gilbert 2014, MIT), 4,078 / 600 / 2,500 / 2,500; needs no extra.

    Each split, named as in `fashion_mnist`, is ({input_ids, attention_mask}: (n, 48) int64, labels (n,) int64: 1 where
    the mean rating is above 0). Sentences rated nearer than 0.5 to 0 or longer than 48 tokens are left out.
    """
    from compress.zoo import minilm

    return minilm.minilm_data()
