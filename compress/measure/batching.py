"""Whether a sample's output depends on what it is batched with: alone against among others, in the target runtime."""

from pathlib import Path

import numpy as np

from compress.data import Split
from compress.device.runtime import open_session, run_session
from compress.measure.accuracy import Runner
from compress.metrics import Outputs

SAMPLES = 32


def batch_variance(path: Path, split: Split, runner: Runner, samples: int = SAMPLES) -> tuple[float, int]:
    """The largest change of an output between a batch of one and one of `runner.batch`, and the samples it rests on.

    Relative to the sample's largest |output|, over all outputs. Float kernels differ by rounding alone.
    """
    session = open_session(path, provider=runner.provider, threads=runner.threads)
    n = min(samples, len(split))
    inputs, _ = split.read(np.arange(n))
    alone = [run_session(session, {k: v[i : i + 1] for k, v in inputs.items()}, str(path)) for i in range(n)]
    worst = 0.0
    for start in range(0, n, runner.batch):
        # The last batch is filled up from the front, so that every sample has as many mates.
        chosen = np.arange(start, start + runner.batch) % n
        together = run_session(session, {k: v[chosen] for k, v in inputs.items()}, str(path))
        for place, sample in enumerate(chosen):
            worst = max(worst, _largest_change(alone[sample], together, place))
    return worst, n


def _largest_change(alone: Outputs, together: Outputs, place: int) -> float:
    changes = []
    for name, values in alone.items():
        one = np.asarray(values[0], dtype=np.float64)
        other = np.asarray(together[name][place], dtype=np.float64)
        size = float(np.abs(one).max()) if one.size else 0.0
        changes.append(float(np.abs(one - other).max()) / size if size > 0 else 0.0)
    return max(changes, default=0.0)
