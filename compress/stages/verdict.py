"""The verdict on a float file: times of its own kernels, this machine's ceilings, and a ceiling for each method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.analyze.advice import advise
from compress.analyze.classes import Measured
from compress.analyze.file_nodes import on_file_nodes
from compress.analyze.methods import Asked
from compress.analyze.onnx_table import table_from_onnx
from compress.analyze.predict import Prediction, predict
from compress.analyze.summary import analysis_dict, complete
from compress.analyze.table import OpTable
from compress.analyze.verdict import Verdict, verdict
from compress.device.cached import load_ceilings, save_ceilings
from compress.device.ceilings import Ceilings
from compress.measure.ceilings import QUICK, measure_ceilings
from compress.measure.stats import Interval

# The predictions that say what a stage of a recipe can give at most.
METHODS_OF_STAGE = {"ptq": ("int8 W8A8",), "qat": ("int8 W8A8",)}


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A file that was timed: one pass of `batch` samples, and the kernels that ran ({name, op, time_ms})."""

    end_to_end_ms: Interval
    kernels: Sequence[Mapping[str, Any]]
    batch: int


@dataclass(frozen=True, kw_only=True)
class Judged:
    """analysis: the whole `compress.analysis/1` document."""

    analysis: dict[str, Any]
    verdict: Verdict
    predictions: tuple[Prediction, ...]

    def hard_ceiling(self, stage: str) -> float | None:
        """The most a stage can give by arithmetic; None where nothing bounds it."""
        found = [one.hard for one in self.predictions if one.name in METHODS_OF_STAGE.get(stage, ())]
        return None if not found or None in found else max(hard for hard in found if hard is not None)

    def stops(self, stage: str) -> bool:
        """Whether even the hard ceiling of every method of the stage is below the target."""
        found = [one.helps for one in self.predictions if one.name in METHODS_OF_STAGE.get(stage, ())]
        return bool(found) and all(helps == "stop" for helps in found)


def judge_file(
    path: Path, timed: Timed, ceilings: Ceilings, asked: Asked, shapes: Mapping[str, Sequence[int]]
) -> Judged:
    """Judge a float ONNX file in ONNX Runtime. shapes: of its inputs, for the batch that was timed."""
    table = table_from_onnx(path, shapes=dict(shapes))
    profiled, whole = on_file_nodes(path, timed.kernels), timed.end_to_end_ms
    measured = Measured(
        runtime="onnxruntime",
        end_to_end_ms=whole,
        ops=without_profiler(profiled, whole.value),
        batch=timed.batch,
        ops_estimated=_total(profiled) > whole.value,
    )
    return judge_table(table, ceilings, measured, asked)


def judge_table(table: OpTable, ceilings: Ceilings, measured: Measured | None, asked: Asked) -> Judged:
    """Judge an op table, with times or on bounds alone."""
    found = verdict(table, ceilings, measured=measured)
    predictions = predict(table, ceilings, found, asked=asked)
    analysis = analysis_dict(table, measured=measured.ops if measured else None)
    document = complete(analysis, found, predictions, ceilings, advice=advise(found, predictions))
    return Judged(analysis=document, verdict=found, predictions=predictions)


def without_profiler(rows: Sequence[Mapping[str, Any]], end_to_end_ms: float) -> list[dict[str, Any]]:
    """Times of kernels without what the profiler itself adds to each of them.

    The profiler costs about the same for every kernel, which for short ones is most of what it shows. Their sum cannot
    exceed the time of the whole pass, so the excess is taken off evenly, and what is left is scaled onto the pass.
    """
    total = _total(rows)
    if total <= end_to_end_ms or not rows:
        return [dict(row) for row in rows]
    each = (total - end_to_end_ms) / len(rows)
    # A tenth of each stays, so that no kernel becomes free.
    left = [max(float(row["time_ms"]) - each, 0.1 * float(row["time_ms"])) for row in rows]
    scale = end_to_end_ms / sum(left)
    return [dict(row) | {"time_ms": time * scale} for row, time in zip(rows, left, strict=True)]


def _total(rows: Sequence[Mapping[str, Any]]) -> float:
    return sum(float(row["time_ms"]) for row in rows)


def ceilings_of_this_machine(threads: int, say: Callable[[str], None]) -> Ceilings:
    """From the cache, or by a quick measurement that is kept for the next time."""
    found = load_ceilings(threads)
    if found is None:
        say("measuring this machine once (compress doctor --measure does it more thoroughly)")
        found = measure_ceilings(threads, lambda _text: None, QUICK)
        save_ceilings(found)
    return found
