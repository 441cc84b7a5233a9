"""Train a net of the zoo on the embedded training split and ship its weights.

`python -m compress.zoo.train NAME [--epochs N] [--seed N] [--threads N]` writes weights/NAME.safetensors and, beside
it, weights/NAME.json, which says how they were made and what they score. The same seed, threads, torch and kind of CPU
give the same weights.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from compress.zoo import held_up, nets, sources
from compress.zoo.splits import Arrays


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How one net is trained: AdamW under a one-cycle schedule, images moved and perhaps mirrored at random."""

    epochs: int
    batch: int
    peak_rate: float
    weight_decay: float = 0.05
    smoothing: float = 0.0
    shift_pixels: int
    mirror: bool
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A net of the zoo, the data it learns from and its plan."""

    factory: Callable[..., nn.Module]
    data: Callable[[], sources.Splits]
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Score:
    """Samples classified right, of n."""

    correct: int
    n: int

    @property
    def top1(self) -> float:
        return self.correct / self.n


ENTRIES = {
    "fashion_resnet": Entry(
        factory=nets.fashion_resnet,
        data=sources.fashion_mnist,
        plan=Plan(epochs=11, batch=128, peak_rate=4e-3, smoothing=0.05, shift_pixels=1, mirror=True),
    ),
    "fashion_mobile": Entry(
        factory=nets.fashion_mobile,
        data=sources.fashion_mnist,
        plan=Plan(epochs=12, batch=128, peak_rate=1e-2, shift_pixels=1, mirror=True),
    ),
    "digits_cnn": Entry(
        factory=nets.digits_cnn,
        data=sources.digits,
        plan=Plan(epochs=30, batch=32, peak_rate=5e-3, shift_pixels=1, mirror=False),
    ),
    "digits_encoder": Entry(
        factory=nets.digits_encoder,
        data=sources.digits,
        plan=Plan(epochs=60, batch=32, peak_rate=2e-3, shift_pixels=1, mirror=False),
    ),
    "digits_deep": Entry(
        factory=held_up.digits_deep,
        data=sources.digits,
        plan=Plan(epochs=30, batch=32, peak_rate=2e-3, shift_pixels=1, mirror=False),
    ),
    "digits_axial": Entry(
        factory=held_up.digits_axial,
        data=sources.digits,
        plan=Plan(epochs=8, batch=32, peak_rate=1e-2, shift_pixels=1, mirror=False),
    ),
}


def main(arguments: list[str]) -> None:
    """Train one net, write its weights and their record into the package."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    entry = ENTRIES[options.name]
    plan = replace(entry.plan, seed=options.seed, epochs=options.epochs or entry.plan.epochs)
    splits = entry.data()
    started = time.perf_counter()
    net = trained(entry.factory, splits["train"], plan, log=print)
    seconds = time.perf_counter() - started
    scores = {split: score(net, splits[split]) for split in ("select", "confirm")}
    switches = f"--epochs {plan.epochs} --seed {plan.seed} --threads {options.threads}"
    record = {
        "command": f"python -m compress.zoo.train {options.name} {switches}",
        "plan": asdict(plan),
        "threads": options.threads,
        "torch": torch.__version__,
        "train_n": len(splits["train"][1]),
        "params": sum(parameter.numel() for parameter in net.parameters()),
        "scores": {split: {"top1": part.top1, **asdict(part)} for split, part in scores.items()},
        "seconds": round(seconds, 1),
    }
    ship(net, record, folder=nets.WEIGHTS, name=options.name)
    print(json.dumps(record["scores"]))


def trained(
    factory: Callable[..., nn.Module], train: Arrays, plan: Plan, *, log: Callable[[str], object] = lambda _line: None
) -> nn.Module:
    """A fresh net from `factory`, fitted to (images (n, 1, height, width) float32, labels (n,) int64), in eval mode.

    The caller's random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        net = factory(pretrained=False)
    random = torch.Generator().manual_seed(plan.seed)
    images, labels = (torch.from_numpy(array) for array in train)
    steps = plan.epochs * (len(labels) // plan.batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=plan.peak_rate, weight_decay=plan.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, plan.peak_rate, total_steps=steps)
    net.train()
    for epoch in range(plan.epochs):
        # The last, shorter batch is left out, so that every step averages over as many samples.
        order = torch.randperm(len(labels), generator=random).split(plan.batch)[: len(labels) // plan.batch]
        total = 0.0
        for chosen in order:
            batch = augmented(images[chosen], plan, random)
            loss = functional.cross_entropy(net(batch), labels[chosen], label_smoothing=plan.smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        log(f"epoch {epoch + 1}/{plan.epochs}: mean loss {total / len(order):.4f}")
    return net.eval()


def augmented(images: Tensor, plan: Plan, random: torch.Generator) -> Tensor:
    """images: (n, 1, height, width); each moved by up to `shift_pixels`, its edge repeated, and maybe mirrored."""
    n, _, height, width = images.shape
    reach = plan.shift_pixels
    padded = functional.pad(images, (reach,) * 4, mode="replicate")[:, 0]
    top, left = torch.randint(0, 2 * reach + 1, (2, n, 1), generator=random)
    columns = left + torch.arange(width)
    if plan.mirror:
        flips = torch.rand(n, 1, generator=random) < 0.5
        columns = torch.where(flips, columns.flip(1), columns)
    rows = top + torch.arange(height)
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]][:, None]


@torch.inference_mode()
def score(net: nn.Module, samples: Arrays, *, batch: int = 500) -> Score:
    """Top-1 of a net in eval mode on (images (n, 1, height, width), labels (n,))."""
    images, labels = (torch.from_numpy(array).split(batch) for array in samples)
    correct = sum(int((net(x).argmax(1) == y).sum()) for x, y in zip(images, labels, strict=True))
    return Score(correct=correct, n=len(samples[1]))


def ship(net: nn.Module, record: dict[str, object], *, folder: Path, name: str) -> None:
    """Write NAME.safetensors and NAME.json into the folder; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: value.contiguous() for key, value in net.state_dict().items()}
    _appear(folder / f"{name}.safetensors", lambda part: part.write_bytes(save(state)))
    _appear(folder / f"{name}.json", lambda part: part.write_text(json.dumps(record, indent=2) + "\n"))


def _appear(path: Path, write: Callable[[Path], object]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compress.zoo.train", description="Train a net of the zoo.")
    parser.add_argument("name", choices=list(ENTRIES))
    parser.add_argument("--epochs", type=_positive, help="default: the plan of the net")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=_positive, default=2, help="part of what makes the weights what they are")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


if __name__ == "__main__":
    main(sys.argv[1:])
