"""The ceilings of PyTorch: matrix products by dtype, what an eager operator costs to start, layout copies."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from compress.device.ceilings import Figure
from compress.measure.ceilings.bandwidth import levels
from compress.measure.ceilings.parts import Part, Product
from compress.measure.ceilings.stopwatch import Call, Stopwatch, Trial

if TYPE_CHECKING:
    from torch import Tensor

Say = Callable[[str], None]
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def measure(watch: Stopwatch, say: Say) -> Part:
    import torch

    torch.set_num_threads(watch.threads)
    with torch.inference_mode():
        products, refused = _products(watch, say)
        say("memory bandwidth")
        found = levels(watch)
        say("layout copies")
        moves = _moves(watch)
        say("cost of starting an operator")
        dispatch = {name: _cost(watch, name, call) for name, call in _smallest_calls().items()}
    return Part(
        products=products,
        refused=refused,
        levels=found,
        moves_bytes_per_s=moves,
        dispatch_ns=dispatch,
        wall_s=watch.wall_s,
        busy_s=watch.busy_s,
    )


def _products(watch: Stopwatch, say: Say) -> tuple[list[Product], dict[str, str]]:
    found, refused = [], {}
    for dtype in DTYPES:
        say(f"torch mm {dtype}")
        try:
            figure = watch.best(_trials(dtype, watch))
        except RuntimeError as error:  # "addmm_impl_cpu_" not implemented for ...
            refused[dtype] = str(error).splitlines()[0]
            continue
        found += [Product(dtype=dtype, kind="gemm", figure=figure)] if figure else []
    return found, refused


def _trials(dtype: str, watch: Stopwatch) -> Iterator[Trial]:
    for size in watch.effort.sizes:
        how = f"torch mm {dtype} {size}x{size}x{size}"
        yield Trial(how=how, work=2.0 * size**3, make=partial(_mm, dtype, size))


def _mm(dtype: str, size: int) -> Call:
    import torch

    kind = getattr(torch, DTYPES[dtype])
    a, b = (torch.rand(size, size).to(kind) for _ in range(2))
    return lambda: torch.mm(a, b)


def _moves(watch: Stopwatch) -> dict[str, Figure]:
    """Copies that change the layout, as networks make them, beside the plain copy of as many bytes."""
    import torch

    views = {
        "copy": torch.rand(2048, 2048),
        "transpose": torch.rand(2048, 2048).t(),
        "nchw to nhwc": torch.rand(8, 64, 56, 56).permute(0, 2, 3, 1),
        "split heads": torch.rand(8, 512, 12, 64).permute(0, 2, 1, 3),
    }
    return {name: _move(watch, name, view) for name, view in views.items()}


def _move(watch: Stopwatch, name: str, view: "Tensor") -> Figure:
    import torch

    target = torch.empty(view.shape)
    sample = watch.time(lambda: target.copy_(view))
    moved = 2 * view.numel() * view.element_size()
    return sample.figure(moved / sample.seconds, f"torch {name}, {moved >> 20} MiB moved")


def _smallest_calls() -> dict[str, Call]:
    """Each class of operator on one number, called as a model calls it: through its module where it has one."""
    import torch
    from torch import nn

    x = torch.ones(1, 1)
    image, batch, heads = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1, 1, 1)
    norm, linear, conv = nn.LayerNorm(1).eval(), nn.Linear(1, 1).eval(), nn.Conv2d(1, 1, 1).eval()
    attend = nn.functional.scaled_dot_product_attention
    return {
        "view": lambda: x.view(1),
        "add": lambda: x + x,
        "cat": lambda: torch.cat((x, x)),
        "layer_norm": lambda: norm(x),
        "bmm": lambda: torch.bmm(batch, batch),
        "sdpa": lambda: attend(heads, heads, heads),
        "linear": lambda: linear(x),
        "conv": lambda: conv(image),
    }


def _cost(watch: Stopwatch, name: str, call: Call) -> Figure:
    sample = watch.time(call)
    return sample.figure(sample.seconds * 1e9, f"torch {name} on one number")
