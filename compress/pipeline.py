"""`compress run`, from top to bottom: inputs, analysis, baselines, the ladder, confirmation, report."""

import platform
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compress import ladder
from compress.candidate import BASELINE, Candidate, GateResult
from compress.device import facts
from compress.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_PASS, EXIT_VERDICT
from compress.files import digest_of, require_writable, write_json, write_with
from compress.gate import accepted, outcome_of
from compress.recipe.load import LoadedRecipe, as_document
from compress.report import assemble
from compress.report.html import render_run
from compress.report.progress import RunProgress
from compress.report.schema import Report
from compress.runs import FREE_BYTES, RunFolder, open_run
from compress.stages import CHECKS, STAGES, analyze, baseline, confirm, explain, floats
from compress.stages.context import Context, StepTaken
from compress.stages.inputs import load_inputs
from compress.stages.judge import judge, with_speed
from compress.stages.trial import Trial, time_against
from compress.stages.verdict import Judged
from compress.store import Store

# How many winners are held to the split that no decision has seen before the ladder gives up.
MOST_LOOKS = 4


@dataclass
class Findings:
    """What a run has found so far: filled step by step, so that an interrupted run can report it."""

    analysis: dict[str, Any] | None = None
    baselines: list[dict[str, Any]] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    measurement: dict[str, Any] | None = None
    confirmation: dict[str, Any] | None = None
    winner: Candidate | None = None
    outcome: str = "fail"
    reason: str = ""
    exit_code: int = EXIT_GATE

    def begin_again_(self, float_candidate: Candidate) -> list[dict[str, Any]]:
        """Forget every rung but the float model's own. Returns the ledger as it was."""
        before, self.ledger, self.steps, self.candidates = self.ledger, [], [], [float_candidate]
        return before

    def take_steps_(self) -> None:
        """Put the steps of a stage behind its row, marked with what the ladder kept of them."""
        winner = ladder.choose(self.candidates)
        self.ledger += assemble.marked_steps(self.steps, winner)
        self.steps = []

    def end(self, outcome: str, reason: str, exit_code: int) -> None:
        self.outcome, self.reason, self.exit_code = outcome, reason, exit_code


@dataclass(frozen=True, kw_only=True)
class Finished:
    report: Report
    folder: Path


@dataclass
class _Listener:
    """Passes what stages tell on to the progress display and to events.jsonl."""

    progress: RunProgress
    folder: RunFolder | None = None
    findings: Findings | None = None

    def update(self, done: int, total: int, text: str) -> None:
        if self.progress.current is not None:
            self.progress.current.update(done=done, total=total, text=text)

    def note(self, text: str) -> None:
        self.progress.note(text)
        self.event("note", {"text": text})

    def found(self, candidate: Candidate) -> None:
        if self.findings is not None:
            self.findings.candidates.append(candidate)
        self.progress.note(
            f"  {candidate.name}: {candidate.outcome} ({ladder.gain(candidate)}; {ladder.risk(candidate)})"
            if candidate.metrics
            else f"  {candidate.name}: {candidate.note}"
        )
        self.event("candidate", {"name": candidate.name, "outcome": candidate.outcome, "note": candidate.note})

    def stepped(self, step: StepTaken) -> None:
        if self.findings is not None:
            self.findings.steps.append(assemble.step_row(step))
        self.event("step", {"name": step.name, "entered": step.entered, "why": step.why})

    def event(self, kind: str, details: dict[str, Any]) -> None:
        if self.folder is not None:
            self.folder.event(kind, details)


def run(loaded: LoadedRecipe, output: Path, progress: RunProgress, *, force: bool = False) -> Finished:
    """Run the recipe; everything it makes lies under `output` (runs/ and .compress/). force: go on against the verdict.

    Raises CompressError for what the user can fix before anything was found; Ctrl-C ends in a report, too.
    """
    started = time.monotonic()
    recipe = loaded.recipe
    store = Store(output / ".compress" / "store")
    require_writable(store.root, FREE_BYTES)
    require_writable(output / "runs", FREE_BYTES)
    listener = _Listener(progress)
    before = facts.pressure()
    with progress.step("inputs", f"loading {recipe.model.ref} and {recipe.data.ref}"):
        inputs = load_inputs(recipe, loaded.path)
    context = Context(
        recipe=recipe, inputs=inputs, store=store, listener=listener, deadline=started + 60 * recipe.budget.minutes
    )
    for spec in recipe.stages:
        if type(spec) in CHECKS:
            CHECKS[type(spec)](context, spec)
    lock = _lock(loaded, context)
    folder, continued = open_run(output / "runs", recipe.name, lock, loaded.text)
    listener.folder = folder
    if continued:
        listener.note(f"continuing the interrupted run {folder.path}")
    write_json(folder.path / "env.json", _environment(context, before))
    listener.event("start", {"recipe": str(loaded.path), "digest": loaded.digest})
    findings = Findings()
    listener.findings = findings
    with folder.live():
        try:
            _climb(context, findings, folder, progress, force=force)
        except KeyboardInterrupt:
            findings.winner = None
            findings.take_steps_()
            findings.end("stopped", "interrupted; run the same command again to continue", EXIT_INTERRUPTED)
        timing = {"seconds": time.monotonic() - started, "before": before}
        return _conclude(loaded, context, findings, folder, progress, timing)


def _climb(context: Context, findings: Findings, folder: RunFolder, progress: RunProgress, *, force: bool) -> None:
    """The verdict first; then baselines, rung after rung until every gate is passed, and confirmation.

    A winner that is not confirmed is no winner: the ladder is climbed again, from what is in the store, and goes on.
    """
    with progress.step("export", "the float model to ONNX") as step:
        model = baseline.export_float(context)
        step.cached() if model.entry.cached else None
    folder.link("01-export", model.entry.path)
    with progress.step("analyze", "counting and profiling operators"):
        findings.analysis, judged = analyze.run(context, model)
    for line in assemble.analysis_lines(findings.analysis):
        progress.note(line)
    if _stopped_by_verdict(context, findings, judged, force=force):
        return
    with progress.step("baselines", "torch eager and the float file"):
        trial, findings.baselines = baseline.measure_baseline(context, model)
        float_candidate = _float_candidate(context, model, trial)
    while True:
        _rungs(context, findings, folder, progress, model, trial, float_candidate)
        findings.measurement = _measurement(context, model)
        refuted = _decide(context, findings, model, progress)
        if refuted is None or context.out_of_time() or len(context.refuted) + 1 >= MOST_LOOKS:
            return
        context = replace(context, refuted={**context.refuted, **refuted})
        progress.note(f"{findings.reason}; going on without it")


def _rungs(
    context: Context,
    findings: Findings,
    folder: RunFolder,
    progress: RunProgress,
    model: baseline.FloatModel,
    trial: Trial,
    float_candidate: Candidate,
) -> None:
    """Every rung of the recipe, entered or skipped for a reason."""
    before = findings.begin_again_(float_candidate)
    for number, spec in enumerate(context.recipe.stages, start=2):
        best = ladder.best_so_far(findings.candidates) or float_candidate
        decision = ladder.decide(spec, best, out_of_time=context.out_of_time(), earlier=findings.candidates)
        nothing = floats.missing_start(spec, findings.candidates)
        if nothing:
            decision = ladder.Decision(entered=False, why=nothing)
        if not decision.entered:
            findings.ledger.append(assemble.skipped_row(spec.label, ladder.WHAT[spec.kind], decision.why))
            progress.note(f"{spec.label}: not entered, {decision.why}")
            continue
        began = time.monotonic()
        with progress.step(spec.label, decision.why):
            known = replace(context, earlier=tuple(findings.candidates))
            known, start = floats.start_of(known, spec, model, findings.candidates)
            made = STAGES[type(spec)](known, spec, start, trial)
        for candidate in made:
            if candidate.artefact:
                folder.link(f"{number:02d}-{candidate.name.replace('/', '-')}", Path(candidate.artefact).parent)
        row = {"seconds": round(time.monotonic() - began, 2), "changed": ladder.WHAT[spec.kind], "why": decision.why}
        findings.ledger.append(
            assemble.entered_row(spec.label, row, ladder.best_so_far(made), ladder.choose(findings.candidates))
        )
        findings.take_steps_()
    findings.ledger = assemble.with_first_times(findings.ledger, before)


def _stopped_by_verdict(context: Context, findings: Findings, judged: Judged, *, force: bool) -> bool:
    """Whether no stage of the recipe can reach its speed-up; the report then says what to do instead."""
    target, stages = analyze.target_of(context), context.recipe.stages
    if target is None or not stages or not all(judged.stops(spec.kind) for spec in stages):
        return False
    most = max(judged.hard_ceiling(spec.kind) or 0.0 for spec in stages)
    why = f"at most {most:.3g}x by arithmetic on this machine, {target:g}x asked"
    if force:
        context.listener.note(f"going on against the verdict (--force): {why}")
        return False
    findings.ledger += [assemble.skipped_row(spec.label, ladder.WHAT[spec.kind], why) for spec in stages]
    findings.end("stopped", assemble.verdict_sentence(judged.analysis["verdict"], why), EXIT_VERDICT)
    return True


def _decide(
    context: Context, findings: Findings, model: baseline.FloatModel, progress: RunProgress
) -> dict[str, list[GateResult]] | None:
    """Confirm the winner on unseen samples, or say what the best candidate misses and why.

    Returns the gates of a winner that was not confirmed, by its name.
    """
    winner = ladder.choose(findings.candidates)
    if winner is None:
        findings.end(*_why_none(context, findings, model), EXIT_GATE)
        return None
    if winner.is_baseline:
        findings.winner = winner
        findings.end("pass", "the float model passes every gate as it is: do not compress it", EXIT_PASS)
        return None
    with progress.step("confirm", f"{winner.name} on unseen samples"):
        found = confirm.run(context, model, winner)
    findings.confirmation = assemble.confirmation(winner, found)
    findings.winner = winner if found.outcome == "pass" else None
    exit_code = EXIT_PASS if found.outcome == "pass" else EXIT_GATE
    findings.end(found.outcome, assemble.confirmed_sentence(winner, found, baseline.RUNTIME), exit_code)
    return None if found.outcome == "pass" else {winner.name: found.gates}


def _why_none(context: Context, findings: Findings, model: baseline.FloatModel) -> tuple[str, str]:
    best = ladder.best_so_far(findings.candidates)
    if best is None or best.is_baseline:
        compressed = [one for one in findings.candidates if not one.is_baseline and one.artefact]
        best = ladder.best_so_far(compressed) or best
    if best is None:
        return "fail", "no candidate could be made"
    outcome = outcome_of(best.gates, accepted(context.recipe.gates))
    evidence = ""
    if (
        best.audit
        and best.artefact
        and any(gate.metric in ladder.CHANGES["ptq"] and gate.outcome != "pass" for gate in best.gates)
    ):
        path = Path(best.artefact)
        int8 = analyze.profile(context, path, context.store.digest_at(path.parent))
        evidence = explain.why_not_faster(best, analyze.profile(context, model.path, model.entry.digest), int8)
    return outcome, assemble.missed_sentence(best, evidence, refuted=best.name in context.refuted)


def _float_candidate(context: Context, model: baseline.FloatModel, trial: Trial) -> Candidate:
    """The float file as the first candidate: a recipe whose gates it passes needs no compression."""
    timings = [
        time_against(context, model.path, model.path, batch, baseline.SELF_TIMING)
        for batch in context.recipe.target.batch_sizes
    ]
    gates = judge(context, trial, trial, timings, "select")
    return Candidate(
        name="model", stage=BASELINE, form="float", parent="", artefact=str(model.path), sha256=model.entry.digest,
        metrics=with_speed(trial, timings, trial), gates=gates,
        outcome=outcome_of(gates, accepted(context.recipe.gates)), parity=model.parity, note="the float model itself",
    )  # fmt: skip


def _measurement(context: Context, model: baseline.FloatModel) -> dict[str, Any]:
    """The A/A run of the float file, and how speed was compared."""
    batch = context.recipe.target.batch_sizes[0]
    timing = time_against(context, model.path, model.path, batch, baseline.SELF_TIMING)
    return {
        "a_a": timing.a_a,
        "protocol": "interleaved ABBA blocks in a process of its own, an A/A run first, "
        "median over blocks of the log-ratio, 99 % bootstrap interval",
    }


def _conclude(
    loaded: LoadedRecipe,
    context: Context,
    findings: Findings,
    folder: RunFolder,
    progress: RunProgress,
    timing: dict[str, Any],
) -> Finished:
    """Put the artefact and the report in place."""
    best = findings.winner or ladder.best_so_far(findings.candidates)
    artefact = _place_artefact(findings, best, folder.path)
    document = assemble.report(
        loaded,
        findings,
        environment=_environment(context, timing["before"]),
        data=_data(context),
        best=best,
        seconds=timing["seconds"],
        folder=folder.path,
        artefact=artefact,
    )
    report = Report.model_validate(document)
    with progress.step("report", "report.json and report.html"):
        write_json(folder.path / "report.json", document)
        render_run(folder.path)
    folder.event("end", {"outcome": findings.outcome, "reason": findings.reason})
    return Finished(report=report, folder=folder.path)


def _place_artefact(findings: Findings, best: Candidate | None, folder: Path) -> Path | None:
    """Copy the winner to export/, or the best so far to best/."""
    if best is None or not best.artefact:
        return None
    target = folder / ("export" if findings.winner else "best") / "model.onnx"
    write_with(target, lambda temporary: shutil.copyfile(str(best.artefact), temporary))
    return target


def _lock(loaded: LoadedRecipe, context: Context) -> dict[str, Any]:
    return {
        "recipe": as_document(loaded.recipe),
        "digest": loaded.digest,
        "model": context.inputs.model_digest,
        "data": context.inputs.splits.digests,
        "versions": facts.versions(),
    }


def _data(context: Context) -> dict[str, Any]:
    splits = context.inputs.splits
    return {
        "digest": digest_of(splits.digests),
        "splits": {name: len(split) for name, split in splits.by_name.items()},
        "leaks": len(splits.leaks),
        "leak_notes": splits.leaks,
    }


def _environment(context: Context, before: dict[str, float]) -> dict[str, Any]:
    target = context.recipe.target
    after = facts.pressure()
    pressure = {f"{name}_before": value for name, value in before.items()} | {
        f"{name}_after": value for name, value in after.items()
    }
    return {
        "versions": facts.versions(),
        "cpu": facts.cpu_facts(),
        "threads": target.threads,
        "provider_requested": target.provider,
        "provider_used": "CPUExecutionProvider",
        "pressure": pressure,
        "platform": platform.platform(),
        "memory_bytes": facts.memory_bytes(),
        "machine": facts.fingerprint(),
    }
