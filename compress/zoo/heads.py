"""Fit the linear head of a pretrained net on frozen features: `python -m compress.zoo.heads NAME [--threads N]`.

Writes weights/NAME.safetensors and weights/NAME.json, as `compress.zoo.train` does for whole nets. Needs the extra the
net needs. Nothing is drawn at random: the same threads, torch and kind of CPU give the same weights.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from compress.errors import CompressError
from compress.zoo import efficientnet, minilm
from compress.zoo.nets import WEIGHTS
from compress.zoo.train import Score, ship

# Weight of the mean squared coefficient beside the mean loss; chosen on the last fifth of the training split.
PENALTIES = (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3)
BATCH = 50

Fitting = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A pretrained net without its head, its data, and the name its head has in the state dict."""

    backbone: Callable[[], nn.Module]
    data: Callable[[], dict[str, Any]]
    prefix: str
    classes: int


def efficientnet_backbone() -> nn.Module:
    net = efficientnet.EfficientNetLite(classes=10)
    state = {**efficientnet.backbone_state(), **{f"_fc.{name}": value for name, value in net._fc.state_dict().items()}}
    net.load_state_dict(state)
    return net.eval()


def minilm_backbone() -> nn.Module:
    encoder = minilm.encoder()
    encoder.load_state_dict(minilm.encoder_state())
    return minilm.Sentiment(encoder).eval()


ENTRIES = {
    "efficientnet_fashion": Entry(
        backbone=efficientnet_backbone, data=efficientnet.efficientnet_data, prefix="_fc.", classes=10
    ),
    "minilm_sentiment": Entry(backbone=minilm_backbone, data=minilm.minilm_data, prefix="", classes=2),
}


def main(arguments: list[str]) -> int:
    """Fit one head and write it with its record into the package; returns the exit code."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    entry = ENTRIES[options.name]
    started = time.perf_counter()
    try:
        net = entry.backbone()
    except CompressError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    splits = {name: features_of(net, samples) for name, samples in entry.data().items() if name != "calibration"}
    penalty = best_penalty(splits["train"], entry.classes)
    head = fitted(splits["train"], penalty, entry.classes)
    scores = {split: score(head, splits[split]) for split in ("train", "select", "confirm")}
    record = {
        "command": f"python -m compress.zoo.heads {options.name} --threads {options.threads}",
        "penalty": penalty,
        "threads": options.threads,
        "torch": torch.__version__,
        "train_n": scores["train"].n,
        "params": sum(parameter.numel() for parameter in net.parameters()),
        "head_params": sum(parameter.numel() for parameter in head.parameters()),
        "scores": {split: {"top1": part.top1, **asdict(part)} for split, part in scores.items()},
        "seconds": round(time.perf_counter() - started, 1),
    }
    named = nn.ModuleDict({entry.prefix.rstrip("."): head}) if entry.prefix else head
    ship(named, record, folder=WEIGHTS, name=options.name)
    print(json.dumps(record["scores"]))
    return 0


@torch.inference_mode()
def features_of(net: Any, samples: Any) -> Fitting:
    """Features (n, width) and labels (n,) of (inputs, labels) or of a dataset, in batches."""
    count = len(samples[1]) if isinstance(samples, tuple) else len(samples)
    parts = [_batch(samples, range(start, min(start + BATCH, count))) for start in range(0, count, BATCH)]
    features = torch.cat([net.features(*inputs) for inputs, _ in parts])
    return features, torch.cat([labels for _, labels in parts])


def best_penalty(samples: Fitting, classes: int) -> float:
    """The penalty whose head, fitted on the first four fifths, is best on the last; the larger one of equals."""
    features, labels = samples
    edge = len(labels) * 4 // 5
    held = features[edge:], labels[edge:]
    right = {one: score(fitted((features[:edge], labels[:edge]), one, classes), held).correct for one in PENALTIES}
    return max(PENALTIES, key=lambda one: (right[one], one))


def fitted(samples: Fitting, penalty: float, classes: int) -> nn.Linear:
    """Multinomial logistic regression on centred features, all divided by one number, both folded into the weights.

    One number, because a feature that hardly varies would get a huge weight from a spread of its own, and with it
    every error that a quantized backbone makes there.
    """
    features, labels = samples[0].clone(), samples[1].clone()
    mean = features.mean(dim=0)
    spread = (features - mean).square().mean().sqrt()
    scaled = (features - mean) / spread
    weight = torch.zeros(classes, scaled.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> float:
        optimizer.zero_grad()
        value = functional.cross_entropy(functional.linear(scaled, weight, bias), labels)
        value = value + penalty * weight.square().sum()
        value.backward()
        return value.item()

    optimizer.step(loss)
    head = nn.Linear(scaled.shape[1], classes)
    with torch.no_grad():
        # w·(x - mean) / spread + b = (w / spread)·x + (b - (w / spread)·mean)
        head.weight.copy_(weight / spread)
        head.bias.copy_(bias - (weight / spread) @ mean)
    return head.eval()


@torch.inference_mode()
def score(head: nn.Module, samples: Fitting) -> Score:
    features, labels = samples
    return Score(correct=int((head(features).argmax(1) == labels).sum()), n=len(labels))


def _batch(samples: Any, indices: range) -> tuple[list[Tensor], Tensor]:
    """Inputs in the order of forward's arguments, each (batch, ...), and labels (batch,)."""
    if isinstance(samples, tuple):
        inputs, labels = samples
        chosen = slice(indices.start, indices.stop)
        return [torch.from_numpy(values[chosen]) for values in inputs.values()], torch.from_numpy(labels[chosen])
    pairs = [samples[index] for index in indices]
    images = torch.from_numpy(np.stack([image for image, _ in pairs]))
    return [images], torch.from_numpy(np.array([label for _, label in pairs]).astype(np.int64))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compress.zoo.heads", description="Fit the head of a net.")
    parser.add_argument("name", choices=list(ENTRIES))
    parser.add_argument("--threads", type=int, default=1, help="part of what makes the weights what they are")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
