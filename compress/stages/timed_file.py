"""Time an ONNX file for its verdict: the whole pass, its kernels, and probes of methods where they are asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.data import Array
from compress.device.ceilings import Ceilings
from compress.measure import isolated
from compress.measure.latency import Plan
from compress.stages.probed import NO_PROBES, Probes, probe_file, with_probes
from compress.stages.question import Question, Say
from compress.stages.verdict import Timed, elasticity_of, judge_file, undisturbed, with_ceilings

TIMING = Plan(seconds=2.0)


@dataclass(frozen=True, kw_only=True)
class FileTimes:
    """What was timed of a file: its verdict's input, every call in ms, and probes by the name of their prediction."""

    timed: Timed
    calls_ms: list[float]
    probes: Probes


def judged_file(
    path: Path, feeds: dict[str, Array], question: Question, ceilings: Ceilings, say: Say
) -> tuple[dict[str, Any], FileTimes]:
    """Judge a file on its own times on this machine. Raises CompressError when it cannot be run or timed.

    feeds: one batch (n, ...) by input name.
    """
    times = time_file(path, feeds, question, say)
    asked = question.asked(probes=times.probes.spans)
    found = judge_file(path, times.timed, ceilings, asked, {name: values.shape for name, values in feeds.items()})
    return with_probes(with_ceilings(found, ceilings), times.probes), times


def time_file(path: Path, feeds: dict[str, Array], question: Question, say: Say) -> FileTimes:
    """Time a file on one batch. Raises InputError when it cannot be run, or too few calls fit into the time."""
    say("timing in ONNX Runtime")
    bench = isolated.Bench(provider=question.provider, threads=question.threads, plan=TIMING)
    calls = [float(ms) for ms in isolated.compare_files(path, path, feeds, bench)["b_ms"]]
    whole, note = undisturbed(calls)
    batch = next((values.shape[0] for values in feeds.values() if values.ndim), 1)
    kernels = isolated.profile(path, feeds, bench)
    grown = elasticity_of(path, feeds, bench)
    timed = Timed(end_to_end_ms=whole, kernels=kernels, batch=batch, elasticity=grown, note=note)
    probes = probe_file(path, feeds, bench, timed.kernels, say) if question.probe else NO_PROBES
    return FileTimes(timed=timed, calls_ms=calls, probes=probes)
