"""The verdict on a float file: times of its own kernels, this machine's ceilings, and a ceiling for each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compress.analyze.advice import advise
from compress.analyze.classes import Measured
from compress.analyze.collection import collection_paused
from compress.analyze.file_nodes import on_file_nodes
from compress.analyze.methods import Asked
from compress.analyze.onnx_table import table_from_onnx
from compress.analyze.predict import Prediction, predict
from compress.analyze.summary import analysis_dict, complete
from compress.analyze.table import OpTable
from compress.analyze.verdict import Verdict, verdict
from compress.data import Array
from compress.device.cached import load_ceilings, save_ceilings
from compress.device.ceilings import Ceilings
from compress.device.devices import device_named
from compress.errors import InputError
from compress.measure import isolated
from compress.measure.ceilings import QUICK, measure_ceilings
from compress.measure.stats import Interval, percentile
from compress.stages.question import Question, Say

# The predictions that say what a stage of a recipe can give at most.
# A pruned model is quantized as well, so no single method bounds what `prune` can give.
METHODS_OF_STAGE: dict[str, tuple[str, ...]] = {"ptq": ("int8 W8A8",), "qat": ("int8 W8A8",), "prune": ()}
# Calls of one file on a quiet machine differ less than this between the fast tenth and the median.
BUSY = 1.25


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A file that was timed: one pass of `batch` samples, and the kernels that ran ({name, op, time_ms}).

    elasticity: see `elasticity_of`; None where it is not known; note: what to know about the times.
    """

    end_to_end_ms: Interval
    kernels: Sequence[Mapping[str, Any]]
    batch: int
    elasticity: float | None = None
    note: str = ""


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
    if timed.note:
        table = noted(table, timed.note)
    profiled, whole = on_file_nodes(path, timed.kernels), timed.end_to_end_ms
    measured = Measured(
        runtime="onnxruntime",
        end_to_end_ms=whole,
        ops=without_profiler(profiled, whole.value),
        batch=timed.batch,
        ops_estimated=_total(profiled) > whole.value,
    )
    return judge_table(table, ceilings, measured, asked, timed.elasticity)


def judge_table(
    table: OpTable, ceilings: Ceilings, measured: Measured | None, asked: Asked, elasticity: float | None = None
) -> Judged:
    """Judge an op table, with times or on bounds alone."""
    with collection_paused():
        found = verdict(table, ceilings, measured=measured, elasticity=elasticity)
        predictions = predict(table, ceilings, found, asked=asked)
        analysis = analysis_dict(table, measured=measured.ops if measured else None)
        document = complete(analysis, found, predictions, ceilings, advice=advise(found, predictions))
    return Judged(analysis=document, verdict=found, predictions=predictions)


def undisturbed(calls_ms: Sequence[float]) -> tuple[Interval, str]:
    """What one pass takes, (n,) timed calls: their median, or the fast tenth where other work held the rest up.

    A verdict puts the pass beside kernels that are timed one by one, too short to be interrupted; so must the pass be.
    Returns the interval and a note, empty on a quiet machine. Raises InputError when there are too few calls.
    """
    calls = np.array(calls_ms)
    median, fast = percentile(calls, 50), percentile(calls, 10)
    if median is None:
        raise InputError("timing", f"only {len(calls)} calls could be timed", "Use a smaller batch, or --no-measure")
    if fast is None or median.value <= BUSY * fast.value:
        return median, ""
    times = median.value / fast.value
    return fast, f"the machine was busy: half of the calls took {times:.2g} times as long as the fast tenth, used here"


def elasticity_of(path: Path, feeds: dict[str, Array], bench: isolated.Bench, seconds: float = 1.0) -> float | None:
    """(t(2b) - t(b)) / t(b) of a file, from medians of calls in turns: near 0 where time does not grow with the batch.

    feeds: one batch (b, ...) by input name. None where the file takes no batch of another size.
    """
    batch = next((values.shape[0] for values in feeds.values() if values.ndim), 0)
    if not batch:
        return None
    try:
        found = isolated.time_in_turns(path, path, feeds, bench, seconds, (batch, 2 * batch))
    except InputError:
        return None
    return 1 / float(found["ratio"]["value"]) - 1


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


def ceilings_of_this_machine(threads: int, say: Say) -> Ceilings:
    """From the cache, or by a quick measurement that is kept for the next time."""
    found = load_ceilings(threads)
    # A busy machine gives roofs too low to stop anybody by; a quieter moment gives better ones.
    if found is None or found.contaminated:
        say("measuring this machine once (compress doctor --measure does it more thoroughly)")
        found = measure_ceilings(threads, lambda _text: None, QUICK)
        save_ceilings(found)
    return found


def ceilings_for(question: Question, say: Say) -> Ceilings:
    """Of the datasheet row asked for, else of this machine. Raises InputError with the names of the rows."""
    if question.device is not None:
        return device_named(question.device)
    return ceilings_of_this_machine(question.threads, say)


def judged_or_counted(table: OpTable, ceilings: Ceilings, asked: Asked) -> dict[str, Any]:
    """The document on bounds alone; a table without a single op that takes time has counts and no verdict."""
    try:
        return with_ceilings(judge_table(table, ceilings, None, asked), ceilings)
    except InputError as error:
        return analysis_dict(noted(table, str(error)))


def with_ceilings(judged: Judged, ceilings: Ceilings) -> dict[str, Any]:
    """The document, with the ceilings as a roofline needs them."""
    return judged.analysis | {"device": judged.analysis["device"] | {"ceilings": ceilings.as_dict()}}


def noted(table: OpTable, *notes: str) -> OpTable:
    """The table with more notes."""
    return replace(table, notes=(*table.notes, *notes))
