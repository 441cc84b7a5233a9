"""Analyze a torch module: counted by tracing, timed as the ONNX file that would be deployed, else in eager torch."""

import inspect
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.analyze.classes import Measured
from compress.analyze.summary import analysis_dict
from compress.analyze.table import OpTable
from compress.data import SINGLE_INPUT, Array
from compress.device.ceilings import Ceilings
from compress.errors import CompressError, InputError
from compress.export.onnx import call_arguments, export_onnx
from compress.export.parity import run_torch
from compress.stages.eager import EagerTimes, eager_times, graph_mode_row
from compress.stages.probed import probe_row
from compress.stages.question import Question, Say
from compress.stages.sample_inputs import OPTION, InputSpec, made_up, named, resized
from compress.stages.subjects import TorchSubject
from compress.stages.timed_file import FileTimes, judged_file
from compress.stages.verdict import (
    ceilings_for,
    judge_table,
    judged_or_counted,
    noted,
    with_ceilings,
    without_profiler,
)

if TYPE_CHECKING:
    from torch import nn

Feeds = dict[str, Array]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A module with one batch of inputs (n, ...) by name, where they come from, and its op table."""

    model: "nn.Module"
    feeds: Feeds
    origin: str
    table: OpTable

    @property
    def batch(self) -> int:
        """Samples in one pass."""
        return next((len(values) for values in self.feeds.values() if values.ndim), 1)


def analyze_torch(subject: TorchSubject, question: Question, say: Say) -> dict[str, Any]:
    """`compress.analysis/1` of a module. Raises InputError when it cannot be built or its inputs are not known.

    Whatever its forward does wrong ends up in the document: in `error` when it cannot be counted whole, in `notes` when
    it cannot be timed.
    """
    from compress.stages.symbolic_part import with_symbolic

    if subject.recipe is not None:
        question = subject_question(subject, question)
    model = _built(subject)
    feeds, origin = _feeds(subject, model, question)
    counted = Counted(model=model, feeds=feeds, origin=origin, table=_traced(model, feeds))
    document = _judged(subject, counted, question, say)
    return with_symbolic(document, model, feeds, counted.table, say)


def subject_question(subject: TorchSubject, question: Question) -> Question:
    """The question with the target of a recipe: threads, provider, and the largest speed-up that a gate asks for."""
    from dataclasses import replace

    recipe = subject.recipe
    assert recipe is not None
    asked = [gate.min for gate in recipe.gates if gate.metric == "speedup" and gate.min is not None]
    return replace(
        question,
        threads=recipe.target.threads,
        provider=recipe.target.provider,
        target_speedup=question.target_speedup or max(asked, default=None),
    )


def _judged(subject: TorchSubject, counted: Counted, question: Question, say: Say) -> dict[str, Any]:
    ceilings, table = ceilings_for(question, say), counted.table
    if not question.timed or table.error:
        return judged_or_counted(table, ceilings, question.asked(batch=counted.batch))
    if subject.weightless:
        note = "not measured: built from its config without weights; export it, and analyze the ONNX file"
        return judged_or_counted(noted(table, note), ceilings, question.asked(batch=counted.batch))
    try:
        return _as_file(counted, question, ceilings, say)
    except CompressError as error:
        return _in_eager(counted, question, ceilings, say, f"not timed as an ONNX file: {error}")


def _as_file(counted: Counted, question: Question, ceilings: Ceilings, say: Say) -> dict[str, Any]:
    """Judged on times of the exported file, with counts of the module itself."""
    model, feeds = counted.model, counted.feeds
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        path = Path(folder) / "model.onnx"
        say("exporting to ONNX")
        # Exporters take an axis of one for a fixed size.
        batch = {name: np.repeat(values, 2, axis=0) if len(values) == 1 else values for name, values in feeds.items()}
        export_onnx(model, batch, path, _output_names(model, batch))
        found, times = judged_file(path, feeds, question, ceilings, say)
    found = _with_own_counts(found, counted, "operators are those of the exported ONNX file")
    return _with_graph_mode(found, counted, question, ceilings, times, say) if question.probe else found


def _with_own_counts(found: dict[str, Any], counted: Counted, *notes: str) -> dict[str, Any]:
    """What was counted of the module in place of what was counted of its file."""
    own = analysis_dict(counted.table)
    kept = {key: own[key] for key in ("model", "coverage", "unknown_ops")}
    return found | kept | {"notes": [*found["notes"], *own["notes"], f"timed on {counted.origin}", *notes]}


def _with_graph_mode(
    found: dict[str, Any], counted: Counted, question: Question, ceilings: Ceilings, times: FileTimes, say: Say
) -> dict[str, Any]:
    """The row of graph mode as what the file gives over eager torch, for it is a graph already."""
    say("timing in eager torch")
    try:
        eager = eager_times(counted.model, counted.feeds, question.threads)
    except Exception as error:  # the user's forward may raise anything, on some runs only
        return found | {"notes": [*found["notes"], f"graph mode not probed: {type(error).__name__}: {error}"]}
    row, result = graph_mode_row(counted.table, ceilings, eager, times.calls_ms, question.asked(batch=counted.batch))
    stages = [row if one["name"] == row["name"] else one for one in found["stages"]]
    return found | {"stages": stages, "probes": [*found.get("probes", []), probe_row(row["name"], result)]}


def _in_eager(counted: Counted, question: Question, ceilings: Ceilings, say: Say, note: str) -> dict[str, Any]:
    """Judged on the times of its own operators in eager torch; on bounds where it does not run either."""
    table = noted(counted.table, note)
    asked = question.asked(batch=counted.batch)
    say("timing in eager torch")
    try:
        eager: EagerTimes = eager_times(counted.model, counted.feeds, question.threads)
    except Exception as error:  # the user's forward may raise anything
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        return judged_or_counted(noted(table, f"not measured: {type(error).__name__}: {line[:200]}"), ceilings, asked)
    measured = Measured(
        runtime="torch",
        end_to_end_ms=eager.whole,
        ops=without_profiler(eager.rows, eager.whole.value),
        batch=counted.batch,
        ops_estimated=sum(row["time_ms"] for row in eager.rows) > eager.whole.value,
    )
    try:
        found = judge_table(noted(table, f"timed in eager torch on {counted.origin}"), ceilings, measured, asked)
    except InputError as error:
        return analysis_dict(noted(table, str(error)))
    return with_ceilings(found, ceilings)


def _traced(model: "nn.Module", feeds: Feeds) -> OpTable:
    from compress.analyze.trace import trace

    args, kwargs = call_arguments(feeds)
    with warnings.catch_warnings():
        # About the model's own code; running it for real says so again.
        warnings.simplefilter("ignore")
        return trace(model, args, kwargs)


def _built(subject: TorchSubject) -> "nn.Module":
    from torch import nn

    from compress.analyze.borrow import unwrapped

    model = subject.build()
    if not isinstance(model, nn.Module):
        raise InputError(subject.place, f"returned {type(model).__name__}, not a torch.nn.Module", "Return the module")
    return unwrapped(model)


def _feeds(subject: TorchSubject, model: "nn.Module", question: Question) -> tuple[Feeds, str]:
    """One batch by name, and where it comes from."""
    if subject.recipe is not None and not question.shapes:
        return _recipe_batch(subject, question)
    usual = subject.specs(model)
    given = {SINGLE_INPUT: question.shapes[0][1]} if _is_single(question) else _named(subject, model, question)
    origin = "random inputs"
    if not given:
        given = dict(usual)
        shown = ", ".join(f"{name} {list(spec.shape)}" for name, spec in usual.items())
        origin += f" of the usual shape: {shown}"
    if not given:
        raise InputError(subject.place, "its inputs are not known", f"Give them, e.g. {OPTION} 1,3,224,224")
    return made_up(resized(given, batch=question.batch, seq=question.seq), _table_rows(model)), origin


def _is_single(question: Question) -> bool:
    """One input without a name goes to forward by position, whatever it is called there."""
    return len(question.shapes) == 1 and question.shapes[0][0] is None


def _named(subject: TorchSubject, model: "nn.Module", question: Question) -> dict[str, InputSpec]:
    return named(question.shapes, _parameters(model, question), f"{subject.place}: forward")


def _parameters(model: "nn.Module", question: Question) -> list[str]:
    """Names that forward takes; whatever was given where it takes any."""
    found = inspect.signature(model.forward).parameters
    names = [name for name, one in found.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    if any(one.kind is one.VAR_KEYWORD for one in found.values()):
        names += [name for name, _ in question.shapes if name is not None and name not in names]
    return names


def _recipe_batch(subject: TorchSubject, question: Question) -> tuple[Feeds, str]:
    from compress.stages.inputs import load_splits

    recipe, path = subject.recipe, subject.path
    assert recipe is not None
    assert path is not None
    if question.seq is not None:
        raise InputError("--seq", "the recipe's samples have a length of their own", "Leave it out")
    split = load_splits(recipe, path)["select"]
    batch = question.batch or recipe.target.batch_sizes[0]
    # A split smaller than the batch gives its samples again.
    return split.read(np.arange(batch) % len(split))[0], f"{batch} samples of the recipe's split 'select'"


def _table_rows(model: "nn.Module") -> int | None:
    """Rows of the smallest embedding, which every token number must be below."""
    from torch import nn

    tables = [one for one in model.modules() if isinstance(one, nn.Embedding | nn.EmbeddingBag)]
    return min((one.num_embeddings for one in tables), default=None)


def _output_names(model: "nn.Module", batch: Feeds) -> list[str]:
    try:
        return list(run_torch(model, batch))
    except CompressError:
        raise
    except Exception as error:  # the user's forward may raise anything
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        raise InputError("model", f"forward raised {type(error).__name__}: {line[:200]}", "Mend forward") from error
