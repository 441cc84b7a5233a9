"""What a run would do, from the store alone: which steps are cached, which are not and why, how long they take."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from compress.ladder import WHAT
from compress.recipe.load import LoadedRecipe
from compress.recipe.spec import Ptq, Recipe
from compress.store import Key, Store

# Seconds on the machine this was written on (2 cores, AVX2), until this machine has figures of its own.
FIRST_GUESS = {
    "inputs": 5.0,
    "export": 12.0,
    "analyze": 5.0,
    "baselines": 25.0,
    "ptq": 75.0,
    "confirm": 25.0,
    "report": 4.0,
}
SECONDS_PER_SCHEME = 15.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """state: cached (reused), run (will run), maybe (depends on what comes before). guessed: seconds from elsewhere."""

    name: str
    depth: int
    state: Literal["cached", "run", "maybe"]
    why: str
    seconds: float
    guessed: bool


def estimates(recipe: Recipe, output: Path) -> list[tuple[str, float | None]]:
    """Steps of a run with the seconds they should take, for the progress display. Loads nothing."""
    store = Store(output / ".compress" / "store")
    names = ["inputs", "export", "analyze", "baselines", *(stage.label for stage in recipe.stages), "confirm", "report"]
    return [(name, store.usual_seconds(name) or FIRST_GUESS.get(name, FIRST_GUESS["ptq"])) for name in names]


def plan(loaded: LoadedRecipe, output: Path) -> list[Step]:
    """The steps of a run in order. Loads model and data to know their digests; raises what `run` raises for them."""
    from compress.stages.baseline import export_key
    from compress.stages.context import Context
    from compress.stages.inputs import load_inputs

    store = Store(output / ".compress" / "store")
    context = Context(
        recipe=loaded.recipe,
        inputs=load_inputs(loaded.recipe, loaded.path),
        store=store,
        listener=_Silent(),
        deadline=float("inf"),
    )
    export = _step(store, "export", export_key(context), "float model to ONNX", FIRST_GUESS["export"])
    steps = [
        export,
        _after(export, "analyze", "count operators, profile the float file"),
        _after(export, "baselines", "torch eager and ONNX Runtime fp32"),
    ]
    entry = store.find("export", export_key(context))
    for spec in loaded.recipe.stages:
        steps += _stage_steps(
            context, spec, entry.digest if entry else None, entry.path / "model.onnx" if entry else None
        )
    return [*steps, _maybe("confirm", "if a candidate passes every gate on select", FIRST_GUESS["confirm"])]


def _stage_steps(context: object, spec: Ptq, digest: str | None, path: Path | None) -> list[Step]:
    """The rung and, where the float file is known, each scheme it would try."""
    from compress.quantize.schemes import schemes_for
    from compress.stages.context import Context
    from compress.stages.ptq import linear_share, scheme_key

    assert isinstance(context, Context)
    gates = ", ".join(dict.fromkeys(gate.metric for gate in context.recipe.gates))
    condition = "always" if spec.run == "always" else f"if the float model misses a gate ({gates})"
    if digest is None or path is None:
        return [
            _maybe(
                spec.label, f"{WHAT[spec.kind]}; {condition}; schemes are chosen after the export", FIRST_GUESS["ptq"]
            )
        ]
    schemes = schemes_for(linear_share=linear_share(path), method=spec.method)
    rows = [
        _step(
            context.store,
            "ptq",
            scheme_key(context, spec, digest, scheme),
            scheme.name,
            SECONDS_PER_SCHEME,
            depth=1,
            name=scheme.name,
        )
        for scheme in schemes
    ]
    state: Literal["cached", "maybe"] = "cached" if all(row.state == "cached" for row in rows) else "maybe"
    head = Step(
        name=spec.label, depth=0, state=state, why=f"{WHAT[spec.kind]}; {condition}", seconds=0.0, guessed=False
    )
    return [head, *rows]


def _step(store: Store, stage: str, key: Key, what: str, guess: float, depth: int = 0, name: str | None = None) -> Step:
    usual = store.usual_seconds(stage)
    # A scheme's own seconds are those of quantizing; measuring it takes the rest.
    seconds = guess if usual is None or stage == "ptq" else usual
    if store.find(stage, key) is not None:
        return Step(name=name or stage, depth=depth, state="cached", why="in the store", seconds=0.0, guessed=False)
    return Step(
        name=name or stage,
        depth=depth,
        state="run",
        why=f"{what}: {store.explain_miss(stage, key).reason}",
        seconds=seconds,
        guessed=usual is None,
    )


def _after(export: Step, name: str, what: str) -> Step:
    if export.state == "cached":
        return Step(
            name=name,
            depth=0,
            state="cached",
            why=f"{what}: reused if this machine measured it",
            seconds=0.0,
            guessed=False,
        )
    return Step(
        name=name, depth=0, state="run", why=f"{what}: after the export", seconds=FIRST_GUESS[name], guessed=True
    )


def _maybe(name: str, why: str, seconds: float) -> Step:
    return Step(name=name, depth=0, state="maybe", why=why, seconds=seconds, guessed=True)


class _Silent:
    """A listener for looking without running."""

    def update(self, done: int, total: int, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def found(self, candidate: object) -> None: ...
