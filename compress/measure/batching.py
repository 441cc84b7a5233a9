"""Whether a sample's output depends on what it is batched with: alone against among others, in the target runtime."""

from pathlib import Path

import numpy as np

from compress.data import Array, Split
from compress.device.runtime import open_session, run_session
from compress.measure.accuracy import Runner
from compress.metrics import Outputs

SAMPLES = 32


def batch_variance(path: Path, split: Split, runner: Runner, samples: int = SAMPLES) -> tuple[float, int]:
    """The largest change of an output between a batch of one and one of `runner.batch`, and the samples it rests on.

    Relative to the sample's largest |output|, or the median of those where that is larger: a sample whose outputs are
    all near zero would make any change look large. Over all outputs. Float kernels differ by rounding alone.
    """
    session = open_session(path, provider=runner.provider, threads=runner.threads)
    n = min(samples, len(split))
    inputs, _ = split.read(np.arange(n))
    alone = [run_session(session, {k: v[i : i + 1] for k, v in inputs.items()}, str(path)) for i in range(n)]
    typical = {name: float(np.median([_size(one[name][0]) for one in alone])) for name in alone[0]}
    worst = 0.0
    for start in range(0, n, runner.batch):
        # The last batch is filled up from the front, so that every sample has as many mates.
        chosen = np.arange(start, start + runner.batch) % n
        together = run_session(session, {k: v[chosen] for k, v in inputs.items()}, str(path))
        for place, sample in enumerate(chosen):
            worst = max(worst, _largest_change(alone[sample], together, place, typical))
    return worst, n


def _largest_change(alone: Outputs, together: Outputs, place: int, typical: dict[str, float]) -> float:
    changes = []
    for name, values in alone.items():
        one = np.asarray(values[0], dtype=np.float64)
        other = np.asarray(together[name][place], dtype=np.float64)
        size = max(_size(one), typical[name])
        changes.append(float(np.abs(one - other).max()) / size if size > 0 else 0.0)
    return max(changes, default=0.0)


def _size(values: Array) -> float:
    return float(np.abs(np.asarray(values, dtype=np.float64)).max()) if values.size else 0.0
