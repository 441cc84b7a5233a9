"""`compress.report/1`: the record of one run, from which every other view of it is made.

Written strictly, read leniently: the format is only ever extended, so a reader keeps keys it does not know and a
missing optional key reads as None, "not measured". `strict.unknown_keys` lists what a writer made up.
Numbers must be finite, for JSON has no infinity: an unmeasured or infinite value is null with a note.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA = "compress.report/1"

Outcome = Literal["pass", "fail", "undecided", "stopped"]
GateOutcome = Literal["pass", "fail", "undecided"]
Limit = Literal["max_drop", "max_relative_drop", "min", "max"]
Number = int | float | None


class Part(BaseModel):
    """A frozen section of the report that keeps keys of later versions."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Measured(Part):
    """A value with its evidence: low and high bound it (level: see the protocol), n counts what it rests on."""

    value: Number = None
    n: int | None = Field(default=None, ge=0)
    low: Number = None
    high: Number = None
    batch: int | None = Field(default=None, ge=1, description="batch size, where the value depends on it")
    note: str | None = None


Metrics = dict[str, Measured]


class RecipeGate(Part):
    """A gate as the recipe asks for it."""

    metric: str
    limit: Limit
    value: float


class RecipeInfo(Part):
    """The recipe that was run. metric_direction tells plots which way is better for a metric of the user's own."""

    name: str
    digest: str
    path: str | None = None
    metric: str | None = None
    metric_direction: Literal["higher", "lower"] | None = None
    gates: list[RecipeGate] = []


class Cpu(Part):
    """The processor; int8 says in words how it multiplies 8-bit integers."""

    name: str | None = None
    cores: int | None = None
    flags: list[str] = []
    int8: str | None = None


class Env(Part):
    """Where the run took place. memory_bytes: installed memory. pressure: load readings by name."""

    versions: dict[str, str] = {}
    cpu: Cpu = Cpu()
    threads: int | None = None
    provider_requested: str | None = None
    provider_used: str | None = None
    pressure: dict[str, Number] = {}
    platform: str | None = None
    memory_bytes: int | None = None
    machine: str | None = Field(default=None, description="digest of what makes timings comparable")


class DataInfo(Part):
    """The data: samples by split, and how many samples stand in more than one."""

    digest: str | None = None
    splits: dict[str, int] = {}
    leaks: int | None = None
    leak_notes: list[str] = []


class ModelCounts(Part):
    """Totals of the float model, per sample where they depend on the input. One MAC is two FLOPs."""

    params: int | None = None
    bytes: int | None = None
    macs: int | None = None
    flops: int | None = None


class AnalyzedOp(Part):
    """One operation of the traced model; bytes by kind of tensor, time_share in [0, 1]."""

    id: int | None = None
    op: str
    module: str | None = None
    kind: str | None = None
    shapes: list[list[int]] = []
    macs: int | None = None
    flops: int | None = None
    bytes: dict[str, Number] = {}
    intensity_flop_per_byte: Number = None
    time_ms: Number = None
    time_share: Number = None


class RuntimeOp(Part):
    """One kernel as the target runtime timed it; share of the whole time in [0, 1]."""

    op: str
    name: str | None = None
    time_ms: Number = None
    share: Number = None


class Method(Part):
    """What one method could give: expected, at most by arithmetic, and as probed."""

    name: str
    hard_speedup: Number = None
    expected_speedup: Number = None
    probe_speedup: Measured | None = None
    helps: str | None = None
    why: str | None = None


class Analysis(Part):
    """The `compress.analysis/1` record, as far as the report shows it."""

    schema_: str | None = Field(default=None, alias="schema")
    model: ModelCounts = ModelCounts()
    coverage: Number = None
    ops: list[AnalyzedOp] = []
    top_ops_runtime: list[RuntimeOp] = []
    device: dict[str, Any] | None = None
    stages: list[Method] = []


class Baseline(Part):
    """A float model in one runtime."""

    name: str
    runtime: str
    metrics: Metrics = {}


class SelfTest(Part):
    """The baseline measured against itself: a clean machine says 1."""

    value: Number = None
    low: Number = None
    high: Number = None
    n: int | None = None
    half_width: Number = None
    clean: bool | None = None


class Measurement(Part):
    """How speed was measured, in words, and the self test that vouches for it."""

    a_a: SelfTest | None = None
    protocol: str | None = None


class JudgedGate(Part):
    """A gate as it was judged. value, low and high are in the gate's own unit (a drop for the drop limits)."""

    metric: str
    limit: Limit
    threshold: float
    value: Number = None
    low: Number = None
    high: Number = None
    outcome: GateOutcome
    needed_n: int | None = Field(default=None, description="samples or runs that would decide an undecided gate")
    note: str | None = None


class Saturation(Part):
    """sqnr_db: integer kernels against the same file run in float; the others: each against the float model.

    lost_db is what running the integer kernels costs on this CPU; much of it means that sums overflow.
    """

    sqnr_db: Number = None
    sqnr_float_db: Number = None
    sqnr_integer_db: Number = None
    lost_db: Number = None
    saturates: bool | None = None


class Audit(Part):
    """Which kernels ran: counts of nodes by what they compute in."""

    integer_ops: int | None = None
    float_ops: int | None = None
    boundary_ops: int | None = None
    provider: str | None = None
    provider_fallbacks: list[str] = []
    accelerated: bool | None = None
    saturation: Saturation | None = None
    by_op: dict[str, int] = {}
    left_in_float: list[str] = []
    note: str | None = None


class Parity(Part):
    """The exported file against the model it came from."""

    max_abs: Number = None
    agreement: Number = None
    batches: list[int] = []
    tolerance: Number = None
    passed: bool | None = None
    note: str | None = None


class BatchFigures(Part):
    """Speed of one candidate at one batch size."""

    batch: int
    speedup: Measured | None = None
    latency_p50_ms: Measured | None = None
    latency_p95_ms: Measured | None = None
    latency_p99_ms: Measured | None = None
    throughput_per_s: Measured | None = None


class Candidate(Part):
    """One concrete model that was tried. artefact: path relative to the run's folder."""

    name: str
    stage: str
    form: str
    parent: str | None = None
    artefact: str | None = None
    sha256: str | None = None
    metrics: Metrics = {}
    by_batch: list[BatchFigures] = []
    gates: list[JudgedGate] = []
    outcome: GateOutcome
    audit: Audit | None = None
    parity: Parity | None = None
    note: str | None = None
    seconds: Number = None


class Confirmation(Part):
    """The winner on the split that nothing was chosen on."""

    candidate: str
    split: str
    metrics: Metrics = {}
    gates: list[JudgedGate] = []
    outcome: GateOutcome | None = None


class LedgerRow(Part):
    """One stage: what it changed, why it was entered or not, what it gave and cost."""

    stage: str
    changed: str | None = None
    entered: bool
    why: str | None = None
    gain: str | None = None
    risk: str | None = None
    seconds: Number = None
    cached: bool | None = None
    kept: bool | None = None


class Report(Part):
    """A whole report. Raises pydantic's ValidationError; `read_report` turns that into an InputError."""

    schema_: Literal["compress.report/1"] = Field(alias="schema")
    outcome: Outcome
    exit_code: int
    winner: str | None = None
    reason: str
    created: str
    seconds: Number = None
    recipe: RecipeInfo
    env: Env = Env()
    data: DataInfo | None = None
    analysis: Analysis | None = None
    verdict: dict[str, Any] | None = None
    baselines: list[Baseline] = []
    baseline: str | None = None
    measurement: Measurement | None = None
    candidates: list[Candidate] = []
    confirmation: Confirmation | None = None
    ledger: list[LedgerRow] = []
    best_so_far: str | None = None
    artefact: str | None = Field(default=None, description="the winner's file, or the best so far's, from the run")
    next: list[str] = []

    @model_validator(mode="after")
    def _winner_is_listed(self) -> Self:
        if self.winner is not None and self.winner not in [candidate.name for candidate in self.candidates]:
            raise ValueError(f"the winner {self.winner!r} is not among the candidates")
        return self


def report_schema() -> dict[str, Any]:
    """The JSON Schema of `compress.report/1`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "compress.report/1",
        **Report.model_json_schema(by_alias=True),
    }


def to_json(report: Report) -> str:
    """The report as report.json holds it: keys in the schema's order, two spaces, a final newline."""
    return report.model_dump_json(by_alias=True, indent=2) + "\n"
