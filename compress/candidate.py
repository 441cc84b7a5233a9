"""A candidate: one concrete model file and everything that was found out about it. Plain data, ready for the report."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

BASELINE = "baseline"
Outcome = Literal["pass", "fail", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Value:
    """A figure with its n and its interval; `value` None means not measured, and `note` says why."""

    value: float | None
    n: int
    low: float | None = None
    high: float | None = None
    batch: int | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """A gate, judged. `needed_n`: how many samples or blocks would decide an undecided one."""

    metric: str
    limit: str
    threshold: float
    value: float | None
    low: float | None
    high: float | None
    outcome: Outcome
    needed_n: int | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    name: str
    stage: str
    form: str
    parent: str
    artefact: str | None = None
    sha256: str | None = None
    metrics: dict[str, Value] = field(default_factory=dict)
    by_batch: list[dict[str, Any]] = field(default_factory=list)
    gates: list[GateResult] = field(default_factory=list)
    outcome: Outcome = "fail"
    audit: dict[str, Any] | None = None
    parity: dict[str, Any] | None = None
    note: str = ""
    seconds: float = 0.0

    @property
    def saturates(self) -> bool:
        """Whether its integer sums overflow on this CPU."""
        return bool(self.audit and self.audit.get("saturation", {}).get("saturates"))

    @property
    def is_baseline(self) -> bool:
        """Whether it is the float model itself."""
        return self.stage == BASELINE

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
