"""What to do about a verdict: two levers a class at most, and what not to do. Pure Python, data and numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from compress.analyze.classes import Class
from compress.analyze.predict import Prediction
from compress.analyze.verdict import Verdict

# A method that cannot give this much is advised against where the class says so.
LITTLE = 1.05


@dataclass(frozen=True, kw_only=True)
class Lever:
    """remedy: a name the product knows; does: what it changes; method: how the predictions that say how much begin."""

    remedy: str
    does: str
    method: str = ""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One sentence. remedy: what to apply; empty for what not to do."""

    remedy: str
    sentence: str


LEVERS: dict[Class, tuple[Lever, ...]] = {
    "data-pipeline": (
        Lever(remedy="loader workers", does="add workers up to the plateau, pin memory and prefetch"),
        Lever(remedy="decode once", does="store decoded samples, or in sequential shards"),
    ),
    "overhead": (
        Lever(remedy="graph mode", does="start one graph and not every op", method="graph mode"),
        Lever(remedy="batch", does="share the cost of starting ops among samples", method="batch"),
    ),
    "movement": (
        Lever(
            remedy="layout",
            does="keep one layout from end to end and fold transposes into their neighbours",
            method="copies folded",
        ),
        Lever(remedy="graph mode", does="let the runtime fuse casts and copies", method="graph mode"),
    ),
    "kernel-limited": (
        Lever(remedy="runtime", does="try another backend or kernel before anything else"),
        Lever(remedy="probe", does="time the replacement kernel on this model's shapes before trusting a prediction"),
    ),
    "compute": (
        Lever(remedy="ptq", does="multiply in 8 bits", method="int8 W8A8"),
        Lever(remedy="prune", does="remove channels and fine-tune", method="prune"),
    ),
    "weight-bandwidth": (
        Lever(remedy="weight-only", does="store weights in fewer bits", method="int4 weight-only"),
        Lever(remedy="batch", does="read the weights once for several samples", method="batch"),
    ),
    "kv-bandwidth": (
        Lever(remedy="kv-int8", does="store the cache in 8 bits", method="KV int8"),
        Lever(remedy="context", does="shorten the context, or share keys and values between heads"),
    ),
    "activation-bandwidth": (
        Lever(remedy="graph mode", does="fuse ops so that activations stay on chip", method="graph mode"),
        Lever(remedy="ptq", does="move activations in 8 bits", method="int8 W8A8"),
    ),
    "unattributed": (Lever(remedy="profile", does="profile the runtime that serves the model: its ops are not these"),),
}
# What the playbook advises against, and the methods whose numbers show it.
NOT: dict[Class, tuple[str, tuple[str, ...]]] = {
    "data-pipeline": ("the model waits for data", ("int8 W8A8", "prune")),
    "overhead": ("the time goes into starting ops, and fewer bits or channels start as many", ("int8 W8A8", "prune")),
    "movement": ("pruning leaves the copies where they are", ("prune",)),
    "kernel-limited": ("ratios of bits or work say nothing while kernels are this far off", ("int8 W8A8",)),
    "activation-bandwidth": ("smaller weights do not change what moves", ("int8 weight-only", "int4 weight-only")),
    "kv-bandwidth": ("smaller weights do not change the cache", ("int4 weight-only",)),
}


def advise(found: Verdict, predictions: Sequence[Prediction] = ()) -> tuple[Advice, ...]:
    """Two levers at most, the more promising one first, then what not to do. Numbers come from `predictions`.

    A lever that is expected to give nothing here is left out, while another one remains.
    """
    levers = sorted(LEVERS[found.class_], key=lambda lever: -_gain(lever.method, predictions))
    levers = [lever for lever in levers if _promises(lever, predictions)] or levers[:1]
    told = [Advice(remedy=lever.remedy, sentence=_lever(lever, predictions)) for lever in levers]
    if found.class_ in NOT:
        told.append(Advice(remedy="", sentence=_not(found, predictions)))
    return tuple(told)


def _lever(lever: Lever, predictions: Sequence[Prediction]) -> str:
    best = _best(lever.method, predictions)
    start = f"{lever.remedy}: {lever.does}"
    if best is None:
        return f"{start}."
    ceiling = f", {best.hard:.3g}x at most" if best.hard is not None else ""
    probe = best.probe
    seen = f", {probe.value:.3g}x [{probe.low:.3g}, {probe.high:.3g}] measured (n={probe.n})" if probe else ""
    return f"{start} ({best.name}: {best.expected:.3g}x expected{ceiling}{seen})."


def _promises(lever: Lever, predictions: Sequence[Prediction]) -> bool:
    best = _best(lever.method, predictions)
    return best is None or _believed(best) >= LITTLE


def _not(found: Verdict, predictions: Sequence[Prediction]) -> str:
    reason, names = NOT[found.class_]
    rows = [row for name in names if (row := _best(name, predictions)) is not None]
    # A number that speaks against the sentence is for the table of methods, not for the reason.
    shown = ", ".join(f"{row.name} {row.expected:.3g}x" for row in rows if row.expected < 1 + 2 * (LITTLE - 1))
    numbers = f"; expected: {shown}" if shown else ""
    return f"do not compress: {found.share:.0%} of the time is {found.class_}, {reason}{numbers}."


def _best(method: str, predictions: Sequence[Prediction]) -> Prediction | None:
    rows = [row for row in predictions if method and row.name.startswith(method)]
    return max(rows, key=_believed, default=None)


def _gain(method: str, predictions: Sequence[Prediction]) -> float:
    best = _best(method, predictions)
    return _believed(best) if best is not None else 0.0


def _believed(row: Prediction) -> float:
    """What was probed, over what is expected."""
    return row.probe.value if row.probe is not None else row.expected
