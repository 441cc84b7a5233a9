"""Run a file over a split in its runtime: scores per sample, and how close its outputs stay to the float model's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compress.candidate import Value
from compress.data import Array, Split
from compress.device.runtime import open_session, run_session
from compress.errors import InputError
from compress.measure import stats
from compress.metrics import Metric, Outputs

# Outputs of so many bytes are kept for comparison; beyond, the first samples stand for all and n says so.
KEPT_BYTES = 64_000_000


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """scores: (n,); outputs: first output of the first k samples, (k, ...)."""

    scores: stats.Floats
    outputs: Array


@dataclass(frozen=True, kw_only=True)
class Runner:
    """How a file is run: provider, threads, batch size."""

    provider: str
    threads: int
    batch: int


def evaluate_file(
    path: Path, split: Split, metric: Metric, runner: Runner, on_batch: Callable[[int, int], None]
) -> Evaluation:
    """Scores of `path` on all of `split`, at the batch size it will serve. Raises InputError on non-finite outputs."""
    session = open_session(path, provider=runner.provider, threads=runner.threads)
    return evaluate(lambda inputs: run_session(session, inputs, str(path)), split, metric, runner.batch, on_batch)


def evaluate(
    run: Callable[[dict[str, Array]], Outputs],
    split: Split,
    metric: Metric,
    batch: int,
    on_batch: Callable[[int, int], None],
) -> Evaluation:
    """Scores and first outputs of `run` over `split`."""
    scores: list[stats.Floats] = []
    kept: list[Array] = []
    room = KEPT_BYTES
    for inputs, labels in split.batches(batch):
        outputs = run(inputs)
        scores.append(metric.score(outputs, labels))
        first = next(iter(outputs.values()))
        if not np.isfinite(first).all():
            start = sum(map(len, scores)) - len(labels)
            raise InputError(
                f"split '{split.name}'",
                f"the model gives NaN or infinity between samples {start} and {start + len(labels) - 1}",
                "Check weights and preprocessing",
            )
        if room > 0:
            kept.append(first)
            room -= first.nbytes
        on_batch(sum(map(len, scores)), len(split))
    return Evaluation(scores=np.concatenate(scores), outputs=np.concatenate(kept))


def fidelity(reference: Array, outputs: Array) -> dict[str, Value]:
    """Agreement of the largest output, mean cosine, SQNR in dB: two runs on the same samples, each (k, ...)."""
    n = min(len(reference), len(outputs))
    a = reference[:n].reshape(n, -1).astype(np.float64)
    b = outputs[:n].reshape(n, -1).astype(np.float64)
    same = stats.wilson(float((a.argmax(axis=1) == b.argmax(axis=1)).sum()), n)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosine = float(((a * b).sum(axis=1) / np.maximum(norms, 1e-30)).mean())
    noise = stats.sqnr_db(a.ravel(), b.ravel())
    return {
        "agreement": Value(value=same.value, low=same.low, high=same.high, n=n),
        "cosine": Value(value=cosine, n=n),
        "sqnr_db": Value(value=noise, n=n, note="" if noise is not None else "identical to the float model"),
    }
