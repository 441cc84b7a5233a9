"""A made-up machine and made-up times, so that no test of a verdict depends on a clock."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from compress.analyze.classes import Measured
from compress.device.ceilings import MEASURED, Ceilings, Figure, Level, Rate

DISPATCH_NS = {
    "view": 900.0, "add": 2300.0, "cat": 3000.0, "layer_norm": 9000.0,
    "bmm": 10000.0, "sdpa": 12000.0, "linear": 13000.0, "conv": 25000.0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Span:
    value: float
    low: float
    high: float
    n: int = 30


def span(value: float, spread: float = 0.02) -> Span:
    return Span(value=value, low=value * (1 - spread), high=value * (1 + spread))


def figure(value: float) -> Figure:
    return Figure(value=value, how="made up")


def machine(
    *,
    fp32: float = 70e9,
    int8: float | None = 140e9,
    dram: float = 12e9,
    cache: int | None = 1 << 20,
    starts: float = 1.0,
    contaminated: bool = False,
) -> Ceilings:
    """One thread of a machine. int8: None where it has none; starts: factor on the cost of starting ops."""
    rates = {"fp32": Rate(gemm=figure(fp32))} | ({"int8": Rate(gemm=figure(int8))} if int8 else {})
    near = (Level(name="l3", size_bytes=cache, bytes_per_s={"read": figure(4 * dram)}),) if cache else ()
    return Ceilings(
        name="made up",
        source=MEASURED,
        confidence="measured",
        threads=1,
        flop_per_s=rates,
        levels=(*near, Level(name="dram", size_bytes=None, bytes_per_s={"read": figure(dram)})),
        dispatch_ns={name: figure(starts * value) for name, value in DISPATCH_NS.items()} if starts else {},
        node_ns=figure(1500.0 * starts) if starts else None,
        contaminated=contaminated,
    )


def measured(value: float, ops=(), *, runtime="torch", spread: float = 0.02, batch: int = 1) -> Measured:
    return Measured(runtime=runtime, end_to_end_ms=span(value, spread), ops=tuple(ops), batch=batch)


def profile(table, times) -> list[dict]:
    """Rows as a profiler gives them. times: from op to milliseconds, or None for no row."""
    rows = [(op, times(op)) for op in table.ops]
    return [{"module": op.module, "op": op.op, "time_ms": ms} for op, ms in rows if ms is not None]


def tiny() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(60) for layer in (nn.Linear(32, 32), nn.LayerNorm(32))]
    return nn.Sequential(*layers), torch.rand(1, 32)


def wide() -> tuple[nn.Module, torch.Tensor]:
    """67 MB of weights, read for one sample."""
    layers = [layer for _ in range(4) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
    return nn.Sequential(*layers), torch.rand(1, 2048)


def heavy() -> tuple[nn.Module, torch.Tensor]:
    """Convolutions with plenty of work for each byte."""
    return nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))), torch.rand(1, 64, 56, 56)


class Chain(nn.Module):
    """Element-wise steps on a large activation."""

    def forward(self, x):
        return ((x * 2 + 1).relu() * 3).sigmoid()


class Shuffle(nn.Module):
    """Grouped and shuffled channels around a small hidden product; what moves has the width of the input."""

    def __init__(self, width: int = 32, hidden: int = 32):
        super().__init__()
        self.up = nn.ModuleList(nn.Conv2d(width, hidden, 1) for _ in range(4))
        self.down = nn.ModuleList(nn.Conv2d(hidden, width, 1) for _ in range(4))

    def forward(self, x):
        for up, down in zip(self.up, self.down, strict=True):
            n, c, h, w = x.shape
            y = down(up(x)) + x
            y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
            x = torch.cat(y.chunk(2, 1), 1).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        return x


class Decode(nn.Module):
    """One step of attention over a long cache that grows."""

    def __init__(self, width: int = 64, heads: int = 2):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, keys, values):
        q, k, v = (t.view(len(x), 1, self.heads, self.size).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.out(y.transpose(1, 2).flatten(2)), keys, values


def decode() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    cache = torch.rand(8, 2, 4096, 32)
    return Decode(), (torch.rand(8, 1, 64), cache, cache.clone())
