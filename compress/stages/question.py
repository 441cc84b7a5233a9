"""What `compress analyze` is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from compress.analyze.bounds import Span
from compress.analyze.methods import Asked
from compress.stages.sample_inputs import InputSpec

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Question:
    """shapes: of inputs as the user gave them, in order, with a name or None; batch, seq: sizes that replace theirs.

    device: a datasheet row, for which nothing is timed; measure: time the model here; probe: time methods as well.
    """

    shapes: Sequence[tuple[str | None, InputSpec]] = ()
    batch: int | None = None
    seq: int | None = None
    device: str | None = None
    threads: int = 1
    measure: bool = True
    probe: bool = False
    target_speedup: float | None = None
    provider: str = "cpu"

    @property
    def timed(self) -> bool:
        """Whether the model is to be timed on this machine."""
        return self.measure and self.device is None

    def asked(self, *, batch: int = 1, probes: Mapping[str, Span] | None = None) -> Asked:
        """What to predict for a table of `batch` samples."""
        return Asked(target_speedup=self.target_speedup, batch=batch, probes=probes or {})
