"""Put what a run found into the shape of `compress.report/1`, and into the sentences a person reads first."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from compress.candidate import Candidate
from compress.errors import EXIT_INTERRUPTED
from compress.gate import sentence
from compress.ladder import best_so_far, gain, risk
from compress.recipe.load import LoadedRecipe
from compress.recipe.spec import MetricSpec, Recipe

SCHEMA = "compress.report/1"
# Whatever a stage makes is timed for at least this long; a stage that took less only looked things up.
SHORTEST_STAGE_SECONDS = 2.0
# Methods worth a word before the run; all of them are in the report.
SHOWN_METHODS = ("int8 W8A8", "prune 50%", "half-depth student")
Row = dict[str, Any]


class Found(Protocol):
    """What a finished or interrupted run hands over."""

    analysis: Row | None
    baselines: list[Row]
    candidates: list[Candidate]
    ledger: list[Row]
    measurement: Row | None
    confirmation: Row | None
    winner: Candidate | None
    outcome: str
    reason: str
    exit_code: int


class Stepped(Protocol):
    """A step inside a stage."""

    @property
    def name(self) -> str: ...
    @property
    def changed(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def entered(self) -> bool: ...
    @property
    def made(self) -> tuple[Candidate, ...]: ...
    @property
    def gain(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class Confirmed(Protocol):
    @property
    def metrics(self) -> Mapping[str, Any]: ...
    @property
    def gates(self) -> list[Any]: ...
    @property
    def outcome(self) -> str: ...


def report(
    loaded: LoadedRecipe,
    found: Found,
    *,
    environment: Row,
    data: Row,
    best: Candidate | None,
    seconds: float,
    folder: Path,
    artefact: Path | None,
) -> Row:
    """The report document. Paths in it are relative to the run's folder."""
    return {
        "schema": SCHEMA,
        "outcome": found.outcome,
        "exit_code": found.exit_code,
        "winner": found.winner.name if found.winner else None,
        "reason": found.reason,
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "seconds": round(seconds, 2),
        "recipe": _recipe(loaded),
        "env": environment,
        "data": data,
        "analysis": found.analysis,
        "verdict": verdict_rows(found.analysis),
        "baselines": [
            row | {"metrics": {name: _plain(value) for name, value in row["metrics"].items()}}
            for row in found.baselines
        ],
        "baseline": "onnxruntime-fp32",
        "measurement": found.measurement,
        "candidates": [
            _candidate(candidate, folder / "stages")
            for candidate in found.candidates
            if not candidate.is_baseline or candidate is best
        ],
        "confirmation": found.confirmation,
        "ledger": found.ledger,
        "best_so_far": best.name if best else None,
        "artefact": str(artefact.relative_to(folder)) if artefact else None,
        "next": _next(loaded, found, folder),
    }


def skipped_row(stage: str, changed: str, why: str) -> Row:
    return {
        "stage": stage,
        "changed": changed,
        "entered": False,
        "why": why,
        "gain": None,
        "risk": None,
        "seconds": 0.0,
        "cached": False,
        "kept": False,
    }


def entered_row(stage: str, row: Row, best: Candidate | None, winner: Candidate | None) -> Row:
    """A ledger row of a stage that ran. best: its best candidate; winner: the ladder's choice so far."""
    kept = winner is not None and winner.stage.partition("/")[0] == stage
    figures = {"gain": gain(best), "risk": risk(best)} if best else {"gain": "no candidate", "risk": None}
    return (
        {"stage": stage, "entered": True, "cached": row["seconds"] < SHORTEST_STAGE_SECONDS, "kept": kept}
        | row
        | figures
    )


def step_row(step: Stepped) -> Row:
    """A ledger row of a step inside a stage; `made` names its candidates until the ladder has chosen."""
    if not step.entered:
        return skipped_row(step.name, step.changed, step.why)
    row = {"seconds": step.seconds, "changed": step.changed, "why": step.why}
    entered = entered_row(step.name, row, best_so_far(step.made), None)
    if not step.made:
        return entered | {"gain": step.gain or "came to nothing", "feeds": bool(step.gain)}
    tried = f"tried {', '.join(candidate.name for candidate in step.made)}"
    return entered | {"gain": f"{entered['gain']} ({tried})", "made": [candidate.name for candidate in step.made]}


def marked_steps(rows: Sequence[Row], winner: Candidate | None) -> list[Row]:
    """Step rows with `kept` set where the ladder's choice was made there, or what it comes from."""

    def kept(row: Row) -> bool:
        stage = row["stage"].partition("/")[0]
        return winner is not None and (
            winner.name in row.get("made", ()) or (row.get("feeds", False) and winner.name.partition("/")[0] == stage)
        )

    return [{key: row[key] for key in row if key not in ("made", "feeds")} | {"kept": kept(row)} for row in rows]


def with_first_times(rows: Sequence[Row], before: Sequence[Row]) -> list[Row]:
    """Rows of a ladder climbed again, each with the time it took when it was climbed first."""
    first = {row["stage"]: row for row in before if row["entered"]}
    return [
        row | {key: first[row["stage"]][key] for key in ("seconds", "cached")} if row["stage"] in first else row
        for row in rows
    ]


def confirmation(winner: Candidate, found: Confirmed) -> Row:
    return {
        "candidate": winner.name,
        "split": "confirm",
        "metrics": {name: _plain(value) for name, value in found.metrics.items()},
        "gates": [_plain(gate) for gate in found.gates],
        "outcome": found.outcome,
    }


def analysis_lines(analysis: Row) -> list[str]:
    """Size and work of the model, the verdict, and what it advises, a line each."""
    model, verdict = analysis["model"], analysis["verdict"]
    intensity = model["flops"] / max(1, analysis["levels"]["G"]["total_bytes"])
    size = f"{_si(model['params'])} params, {_si(model['macs'])} macs, {_si(model['flops'])} flops"
    hot = ", ".join(f"{node['name'] or node['op']} {node['share']:.0%}" for node in analysis["top_ops_runtime"][:3])
    methods = ", ".join(
        f"{row['name']} {row['expected_speedup']:.2g}x expected"
        + (f" (at most {row['hard_speedup']:.3g}x)" if row["hard_speedup"] else "")
        for row in analysis["stages"]
        if row["name"] in SHOWN_METHODS
    )
    lines = [f"model: {size}, {intensity:.1f} flop per byte; hottest: {hot}", f"verdict: {verdict['sentence']}"]
    lines += [f"error: {sentence}" for sentence in verdict["errors"]]
    return [*lines, f"methods: {methods}", *(f"advice: {one['sentence']}" for one in verdict["advice"])]


def verdict_rows(analysis: Row | None) -> Row | None:
    """The verdict as the report shows it: sentences first, figures after."""
    if analysis is None or not analysis.get("verdict"):
        return None
    verdict = analysis["verdict"]
    return {
        "sentence": verdict["sentence"],
        "advice": [one["sentence"] for one in verdict["advice"]],
        "evidence": verdict["evidence"],
        "errors": verdict["errors"],
        "class": verdict["class"],
        "share": verdict["share"],
        "runner_up": verdict["runner_up"],
        "confidence": verdict["confidence"],
        "hard_bound_ms": verdict["bound"]["hard_ms"],
        "measured_ms": verdict["measured_ms"],
    }


def verdict_sentence(verdict: Row, why: str) -> str:
    """Why a run was stopped before any stage, and what helps instead."""
    instead = " ".join(one["sentence"] for one in verdict["advice"])
    return f"stopped by the verdict: {why}. {verdict['sentence']} Instead: {instead} (--force goes on anyway)"


def confirmed_sentence(winner: Candidate, found: Confirmed, baseline: str) -> str:
    gates = "; ".join(sentence(gate) for gate in found.gates)
    if found.outcome == "pass":
        return f"{winner.name} passes every gate over {baseline}, confirmed on unseen samples: {gates}"
    return f"{winner.name} passed on select but was not confirmed on unseen samples: {gates}"


def missed_sentence(best: Candidate, evidence: str, *, refuted: bool = False) -> str:
    missed = "; ".join(sentence(gate) for gate in best.gates if gate.outcome != "pass")
    slower = best.metrics.get("speedup")
    where = ", not confirmed on unseen samples" if refuted else ""
    head = f"no candidate passes every gate; best so far {best.name}{where}: {missed}"
    if slower is not None and slower.high is not None and slower.high < 1.0:
        head = f"{best.form} is not faster on this machine; best so far {best.name}{where}: {missed}"
    return f"{head}. {evidence[0].upper()}{evidence[1:]}" if evidence else head


def _recipe(loaded: LoadedRecipe) -> Row:
    recipe = loaded.recipe
    return {
        "name": recipe.name,
        "digest": loaded.digest,
        "path": str(loaded.path),
        "metric": recipe.metric_name,
        "metric_direction": recipe.metric.direction if isinstance(recipe.metric, MetricSpec) else "higher",
        "gates": _gates(recipe),
    }


def _gates(recipe: Recipe) -> list[Row]:
    limits = ("max_drop", "max_relative_drop", "min", "max")
    return [
        {"metric": gate.metric, "limit": limit, "value": getattr(gate, limit)}
        for gate in recipe.gates
        for limit in limits
        if getattr(gate, limit) is not None
    ]


def _candidate(candidate: Candidate, stages: Path) -> Row:
    """The candidate as plain data, its artefact named through the run's own links."""
    row = candidate.as_dict()
    if candidate.artefact:
        target = Path(candidate.artefact)
        link = next((path for path in sorted(stages.glob("*")) if path.resolve() == target.parent.resolve()), None)
        row["artefact"] = f"stages/{link.name}/{target.name}" if link else None
    return row


def _next(loaded: LoadedRecipe, found: Found, folder: Path) -> list[str]:
    """Commands worth typing next."""
    commands = [f"compress report {folder}"]
    if found.outcome == "stopped":
        again = f"compress run {loaded.path}"
        return [again if found.exit_code == EXIT_INTERRUPTED else f"{again} --force", *commands]
    if found.winner is None:
        missed = {gate.metric for candidate in found.candidates for gate in candidate.gates if gate.outcome != "pass"}
        index = next(
            (i for i, gate in enumerate(loaded.recipe.gates) if gate.metric in missed and gate.min is not None), None
        )
        if index is not None:
            commands.append(f"compress run {loaded.path} --set gates[{index}].min=1.0")
    return [*commands, f"compress plan {loaded.path}"]


def _plain(value: Any) -> Any:
    return value if isinstance(value, dict) else vars(value)


def _si(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:g}"
