"""What a run would do, from the store alone: what is cached, what is not and why, how long it took before."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compress.ladder import WHAT
from compress.recipe.load import LoadedRecipe
from compress.recipe.spec import Prune, Ptq, Qat, Recipe, Stage
from compress.store import Entry, Key, Store

if TYPE_CHECKING:
    from compress.quantize.schemes import Scheme
    from compress.stages.context import Context

State = Literal["cached", "run", "maybe"]
Part = tuple[str, Key]

# Seconds on the machine this was written on (2 cores, AVX2), until this machine has figures of its own.
FIRST_GUESS = {
    "inputs": 5.0,
    "export": 12.0,
    "analyze": 5.0,
    "baselines": 20.0,
    "ptq": 75.0,
    "qat": 600.0,
    "prune": 600.0,
    "confirm": 25.0,
    "report": 4.0,
}
SECONDS_PER_SCHEME = 15.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """state: cached (reused), run (will run), maybe (depends on what comes before); guessed: not timed here before."""

    name: str
    depth: int = 0
    state: State
    why: str
    seconds: float = 0.0
    guessed: bool = False


def estimates(recipe: Recipe, output: Path) -> list[tuple[str, float | None]]:
    """Steps of a run with the seconds they should take, for the progress display. Loads nothing."""
    store = Store(output / ".compress" / "store")
    names = ["inputs", "export", "analyze", "baselines", *(stage.label for stage in recipe.stages), "confirm", "report"]
    usual = {"export": store.usual_seconds("export")}
    kinds = {stage.label: stage.kind for stage in recipe.stages}
    return [(name, usual.get(name) or FIRST_GUESS[kinds.get(name, name)]) for name in names]


def plan(loaded: LoadedRecipe, output: Path) -> list[Step]:
    """The steps of a run in order. Loads model and data for their digests; raises what `run` would raise for them."""
    from compress.stages.baseline import export_key
    from compress.stages.context import Context
    from compress.stages.inputs import load_inputs

    store = Store(output / ".compress" / "store")
    inputs = load_inputs(loaded.recipe, loaded.path)
    context = Context(recipe=loaded.recipe, inputs=inputs, store=store, listener=_Silent(), deadline=float("inf"))
    export = _step(store, [("export", export_key(context))], "export", "the float model to ONNX", FIRST_GUESS["export"])
    entry = store.find("export", export_key(context))
    steps = [export, *_float_steps(context, entry)]
    for spec in loaded.recipe.stages:
        steps += _stage_steps(context, spec, entry)
    why = "if a candidate passes every gate on select"
    return [*steps, Step(name="confirm", state="maybe", why=why, seconds=FIRST_GUESS["confirm"], guessed=True)]


def _float_steps(context: "Context", entry: Entry | None) -> list[Step]:
    """Analysis and baselines of the float model."""
    from compress.stages.analyze import count_key, profile_key
    from compress.stages.baseline import SELF_TIMING, torch_key
    from compress.stages.trial import scores_key, timing_key

    whats = {"analyze": "count operators, profile the float file", "baselines": "torch eager and ONNX Runtime fp32"}
    if entry is None:
        return [
            Step(name=name, state="run", why=f"{what}: after the export", seconds=FIRST_GUESS[name], guessed=True)
            for name, what in whats.items()
        ]
    path, batches = entry.path / "model.onnx", context.recipe.target.batch_sizes
    timings = [("timing", timing_key(context, path, path, batch, SELF_TIMING)) for batch in batches]
    parts: dict[str, list[Part]] = {
        "analyze": [
            ("analysis", count_key(context)),
            ("profile", profile_key(context, entry.digest)),
            timings[0],
        ],
        "baselines": [
            ("scores", scores_key(context, entry.digest, "select")),
            ("torch", torch_key(context, batches[0])),
            *timings,
        ],
    }
    return [_step(context.store, parts[name], name, what, FIRST_GUESS[name]) for name, what in whats.items()]


def _stage_steps(context: "Context", spec: Stage, entry: Entry | None) -> list[Step]:
    if isinstance(spec, Qat):
        return _qat_steps(context, spec)
    if isinstance(spec, Prune):
        return _prune_steps(context, spec)
    if isinstance(spec, Ptq):
        return _ptq_steps(context, spec, entry)
    raise TypeError(f"no plan is known for a stage of type {type(spec).__name__}")


def _qat_steps(context: "Context", spec: Qat) -> list[Step]:
    """What is trained depends on what ptq finds, so only the time can be told, from trainings made here before."""
    usual = context.store.usual_seconds("train")
    seconds = FIRST_GUESS["qat"] if usual is None else 2 * usual
    why = (
        f"{WHAT['qat']}; {spec.epochs} epochs, then as many for the float model as a control; "
        "if an accuracy or fidelity gate is missed"
    )
    return [Step(name=spec.label, state="maybe", why=why, seconds=seconds, guessed=usual is None)]


def _prune_steps(context: "Context", spec: Prune) -> list[Step]:
    """Which channels go is known only when it runs; the time is that of trainings made here before."""
    from compress.stages.prune import finishers

    usual = context.store.usual_seconds("train")
    seconds = FIRST_GUESS["prune"] if usual is None else spec.steps * usual
    rounds = (
        f"{spec.steps} rounds of {spec.finetune.epochs} epochs" if spec.steps > 1 else f"{spec.finetune.epochs} epochs"
    )
    names = ", ".join(stage.label for stage in finishers(context.recipe.stages, spec))
    why = f"{WHAT['prune']}; {spec.by} to {spec.keep:g} of the whole, {rounds}"
    why += f"; finished by {names}" if names else ""
    return [Step(name=spec.label, state="maybe", why=why, seconds=seconds, guessed=usual is None)]


def _ptq_steps(context: "Context", spec: Ptq, entry: Entry | None) -> list[Step]:
    """The rung and, where the float file is known, each scheme it would try."""
    from compress.device.facts import overflows_here
    from compress.quantize.schemes import LINEAR_HEAVY, scheme_names, schemes_for
    from compress.quantize.ways import METHOD_STEPS, steps_for
    from compress.stages.ptq_files import linear_share

    gates = ", ".join(dict.fromkeys(gate.metric for gate in context.recipe.gates))
    condition = "always" if spec.run == "always" else f"if the float model misses a gate ({gates})"
    why = f"{WHAT[spec.kind]}; {condition}"
    if entry is None:
        why += "; schemes are chosen after the export"
        return [Step(name=spec.label, state="maybe", why=why, seconds=FIRST_GUESS["ptq"], guessed=True)]
    share = linear_share(entry.path / "model.onnx")
    if spec.method != "auto" and spec.method not in scheme_names():
        what = METHOD_STEPS.get(spec.method, "weights only")
        return [Step(name=spec.label, state="maybe", why=f"{why}; {what}", seconds=FIRST_GUESS["ptq"], guessed=True)]
    rows = [
        _step(
            context.store,
            _scheme_parts(context, spec, entry, scheme),
            scheme.name,
            "quantize, audit, measure",
            SECONDS_PER_SCHEME,
            depth=1,
        )
        for scheme in schemes_for(
            linear_share=share, method=spec.method, overflows=overflows_here(), weight_bits=spec.weight_bits
        )
    ]
    state: State = "cached" if all(row.state == "cached" for row in rows) else "maybe"
    if spec.method == "auto":
        dearer = ", ".join(steps_for(linear_heavy=share >= LINEAR_HEAVY)[1:])
        why += f"; then {dearer}, as long as no file passes"
    return [Step(name=spec.label, state=state, why=why), *rows]


def _scheme_parts(context: "Context", spec: Ptq, entry: Entry, scheme: "Scheme") -> list[Part]:
    """Every entry that trying one scheme makes; those after the first are known only when the file is there."""
    from compress.quantize.ways import Way
    from compress.stages.ptq_files import way_key
    from compress.stages.ptq_try import SCREENING, audit_key
    from compress.stages.trial import batch_key, scores_key, timing_key

    first = ("ptq", way_key(context, spec, entry.digest, Way(scheme=scheme)))
    made = context.store.find(*first)
    if made is None:
        return [first]
    base, path = entry.path / "model.onnx", made.path / "model.onnx"
    timings = [
        ("timing", timing_key(context, base, path, batch, SCREENING)) for batch in context.recipe.target.batch_sizes
    ]
    scores = ("scores", scores_key(context, made.digest, "select"))
    batching = ("batching", batch_key(context, made.digest, "select"))
    return [first, ("audit", audit_key(context, made.digest)), scores, batching, *timings]


def _step(store: Store, parts: Sequence[Part], name: str, what: str, guess: float, depth: int = 0) -> Step:
    """One step from the entries it makes: cached when all of them are there."""
    missing = next((part for part in parts if store.find(*part) is None), None)
    if missing is None:
        return Step(name=name, depth=depth, state="cached", why="in the store")
    usual = store.usual_seconds(missing[0]) if len(parts) == 1 and depth == 0 else None
    why = f"{what}: {store.explain_miss(*missing).reason}"
    return Step(name=name, depth=depth, state="run", why=why, seconds=usual or guess, guessed=usual is None)


class _Silent:
    """A listener for looking without running."""

    def update(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def found(self, candidate: object) -> None: ...

    def stepped(self, step: object) -> None: ...
