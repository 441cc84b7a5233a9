"""The ceilings of ONNX Runtime: products and convolutions in float and 8 bits, and what a node costs."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from compress.device.ceilings import Figure
from compress.device.runtime import open_session
from compress.measure.ceilings import graphs
from compress.measure.ceilings.parts import Part, Product
from compress.measure.ceilings.stopwatch import Call, Stopwatch, Trial

if TYPE_CHECKING:
    from onnx import ModelProto

Say = Callable[[str], None]
# Channels and side of the 3x3 convolutions in the four stages of a ResNet at 224 pixels.
CONV_SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7))
CHAIN = 100

PRODUCTS: tuple[tuple[str, str, Callable[[int], "ModelProto"]], ...] = (
    ("fp32", "MatMul", graphs.float_product),
    ("int8", "QLinearMatMul", graphs.integer_product),
    ("int8", "MatMulInteger with DynamicQuantizeLinear", graphs.dynamic_product),
)
CONVS: tuple[tuple[str, str, Callable[[int, int], "ModelProto"]], ...] = (
    ("fp32", "Conv", graphs.float_conv),
    ("int8", "QLinearConv", graphs.integer_conv),
)


def measure(watch: Stopwatch, say: Say) -> Part:
    products: list[Product] = []
    for dtype, op, build in PRODUCTS:
        say(f"ONNX Runtime {op}")
        products += _product(dtype, "gemm", watch.best(_product_trials(op, build, watch)))
    for dtype, op, build_conv in CONVS:
        say(f"ONNX Runtime {op}")
        # Every shape is tried: convolutions of one cost differ more by shape than by size.
        products += _product(dtype, "conv", watch.best(_conv_trials(op, build_conv, watch)))
    say("ONNX Runtime node cost")
    return Part(products=products, node_ns=_node_cost(watch), wall_s=watch.wall_s, busy_s=watch.busy_s)


def _product(dtype: str, kind: str, figure: Figure | None) -> list[Product]:
    return [Product(dtype=dtype, kind=kind, figure=figure)] if figure else []


def _product_trials(op: str, build: Callable[[int], "ModelProto"], watch: Stopwatch) -> Iterator[Trial]:
    for size in watch.effort.sizes:
        how = f"onnxruntime {op} {size}x{size}x{size}"
        yield Trial(how=how, work=2.0 * size**3, make=partial(_made, build, (size,), watch))


def _conv_trials(op: str, build: Callable[[int, int], "ModelProto"], watch: Stopwatch) -> Iterator[Trial]:
    for channels, side in CONV_SHAPES:
        how = f"onnxruntime {op} 3x3, {channels} channels, {side}x{side}"
        work = 2.0 * 9 * channels**2 * side**2
        yield Trial(how=how, work=work, make=partial(_made, build, (channels, side), watch))


def _node_cost(watch: Stopwatch) -> Figure:
    """(time of 200 nodes - time of 100) / 100: what a session costs as a whole drops out."""
    short, long = (
        watch.time(_call(graphs.chain(length), watch.threads, optimise=False)) for length in (CHAIN, 2 * CHAIN)
    )
    # Two timings that disagree can leave less than nothing; the clock cannot tell below one nanosecond.
    nanoseconds = max(1.0, (long.seconds - short.seconds) / CHAIN * 1e9)
    return long.figure(nanoseconds, f"onnxruntime Add on one number, {2 * CHAIN} nodes less {CHAIN}")


def _made(build: "Callable[..., ModelProto]", shape: tuple[int, ...], watch: Stopwatch) -> Call:
    return _call(build(*shape), watch.threads)


def _call(model: "ModelProto", threads: int, *, optimise: bool = True) -> Call:
    import onnx

    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        session = open_session(path, threads=threads, optimise=optimise)
    feed = graphs.feed_for(model)
    return lambda: session.run(None, feed)
