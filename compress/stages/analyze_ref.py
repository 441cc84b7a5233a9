"""Analyze a model without a recipe: a torch callable, an ONNX file, or the config of a language model."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compress.analyze.methods import Asked
from compress.analyze.onnx_table import table_from_onnx
from compress.analyze.summary import analysis_dict
from compress.analyze.table import OpTable
from compress.data import Array
from compress.device.ceilings import Ceilings
from compress.device.devices import device_named
from compress.errors import CompressError, InputError
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.measure.stats import Interval
from compress.stages.verdict import Judged, Timed, ceilings_of_this_machine, judge_file, judge_table

Say = Callable[[str], None]
Shapes = Mapping[str, Sequence[int]]
TIMING = Plan(seconds=2.0)
DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "int64": np.int64,
    "int32": np.int32,
    "float16": np.float16,
    "bool": np.bool_,
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to analyze and for which device. shapes: of inputs by name, batch first; measure: time the model here."""

    shapes: Shapes
    device: str | None
    threads: int
    measure: bool
    target_speedup: float | None


def analyze_onnx(path: Path, question: Question, say: Say) -> dict[str, Any]:
    """`compress.analysis/1` of an ONNX file, with times of its kernels where they were asked for and could be had."""
    table = table_from_onnx(path, shapes={name: list(shape) for name, shape in question.shapes.items()} or None)
    ceilings = _ceilings(question, say)
    asked = Asked(target_speedup=question.target_speedup)
    if question.measure and question.device is None:
        try:
            return _with_ceilings(_timed(path, question, ceilings, asked, say), ceilings)
        except CompressError as error:
            table = _noted(table, f"not measured: {error}")
    return _judged(table, ceilings, asked)


def analyze_torch(model: Any, question: Question, say: Say) -> dict[str, Any]:
    """The same for a torch module: counted by tracing; timed as the ONNX file that would be deployed."""
    from compress.analyze.trace import trace
    from compress.export.onnx import call_arguments, export_onnx
    from compress.export.parity import run_torch

    feeds = {name: np.zeros(shape, np.float32) for name, shape in question.shapes.items()}
    args, kwargs = call_arguments(feeds)
    table = trace(model, args, kwargs)
    asked, ceilings = Asked(target_speedup=question.target_speedup), _ceilings(question, say)
    if question.measure and question.device is None and not table.error:
        with tempfile.TemporaryDirectory(prefix="compress-") as folder:
            path = Path(folder) / "model.onnx"
            try:
                say("exporting to ONNX")
                batch = {
                    name: np.zeros((max(2, shape[0]), *shape[1:]), np.float32)
                    for name, shape in question.shapes.items()
                }
                export_onnx(model, batch, path, list(run_torch(model, batch)))
                timed = _timed(path, question, ceilings, asked, say)
            except CompressError as error:
                table = _noted(table, f"not measured: {error}")
            else:
                counted = analysis_dict(table)
                return _with_ceilings(timed, ceilings) | {"model": counted["model"], "coverage": counted["coverage"]}
    return _judged(table, ceilings, asked)


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`1,3,224,224` or `name=1,3,224,224`. Raises InputError with an example."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shape = ()
        if not shape or min(shape) < 1:
            raise InputError("--input-shape", f"'{text}' is no shape", "Write it like 1,3,224,224 or name=1,3,224,224")
        shapes[name if equals else "input"] = shape
    return shapes


def _timed(path: Path, question: Question, ceilings: Ceilings, asked: Asked, say: Say) -> dict[str, Any]:
    say("timing in ONNX Runtime")
    bench = isolated.Bench(provider="cpu", threads=question.threads, plan=TIMING)
    feeds = _random_feeds(path, question, bench)
    samples = isolated.compare_files(path, path, feeds, bench)["b_ms"]
    p50 = isolated.latency_values(samples, 1)["latency_p50_ms"]
    if p50.value is None or p50.low is None or p50.high is None:
        raise InputError(str(path), f"only {p50.n} calls could be timed", "Use a smaller batch, or --no-measure")
    whole = Interval(value=p50.value, low=p50.low, high=p50.high, n=p50.n)
    batch = next(iter(feeds.values())).shape[0] if feeds else 1
    timed = Timed(end_to_end_ms=whole, kernels=isolated.profile(path, feeds, bench), batch=batch)
    found = judge_file(path, timed, ceilings, asked, {name: values.shape for name, values in feeds.items()})
    note = "timed on random inputs"
    return found.analysis | {"notes": [*found.analysis["notes"], note]}


def _random_feeds(path: Path, question: Question, bench: isolated.Bench) -> dict[str, Array]:
    """Inputs of the file's own types; open sizes are those asked for, or 1."""
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        opened = isolated.open_isolated(path, Path(folder) / "optimised.onnx", bench)
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for name, kind, sizes in opened["inputs"]:
        shape = question.shapes.get(name) or [size if isinstance(size, int) and size > 0 else 1 for size in sizes]
        dtype = DTYPES.get(kind.removeprefix("tensor(").removesuffix(")"))
        if dtype is None:
            raise InputError(str(path), f"input '{name}' is {kind}", "Use --no-measure for inputs of other types")
        floats = np.issubdtype(dtype, np.floating)
        feeds[name] = (rng.standard_normal(shape) if floats else np.zeros(shape)).astype(dtype)
    return feeds


def _ceilings(question: Question, say: Say) -> Ceilings:
    return device_named(question.device) if question.device else ceilings_of_this_machine(question.threads, say)


def _judged(table: OpTable, ceilings: Ceilings, asked: Asked) -> dict[str, Any]:
    """On bounds alone; a table without a single op that takes time has counts and no verdict."""
    try:
        found: Judged = judge_table(table, ceilings, None, asked)
    except InputError as error:
        return analysis_dict(_noted(table, str(error)))
    return _with_ceilings(found.analysis, ceilings)


def _with_ceilings(analysis: dict[str, Any], ceilings: Ceilings) -> dict[str, Any]:
    return analysis | {"device": analysis["device"] | {"ceilings": ceilings.as_dict()}}


def _noted(table: OpTable, note: str) -> OpTable:
    from dataclasses import replace

    return replace(table, notes=(*table.notes, note))
