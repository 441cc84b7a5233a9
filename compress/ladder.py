"""The ladder's decisions, as pure functions: enter a rung or not, which candidate wins. Each comes with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass

from compress.candidate import Candidate, GateResult, Value
from compress.gate import sentence
from compress.recipe.spec import COST_METRICS, SPEED_METRICS, Stage

# What each stage can improve over the float model. Everything else it can only keep or lose.
CHANGES: dict[str, frozenset[str]] = {
    "ptq": frozenset({*SPEED_METRICS, *COST_METRICS}),
    "qat": frozenset({*SPEED_METRICS, *COST_METRICS}),
    "prune": frozenset({*SPEED_METRICS, *COST_METRICS}),
}
WHAT: dict[str, str] = {
    "ptq": "weights and activations to 8 bits",
    "qat": "weights trained to bear the target's rounding",
    "prune": "fewer channels, trained to follow the float model",
}
# What it starts from stays as fast and as large as it is: the graph does not change.
KEEPS_SPEED = frozenset({"qat"})


# Speeds of two files closer than this trade places from one run to the next; a choice must not hang on that.
SPEED_TIE = 0.05


@dataclass(frozen=True, kw_only=True)
class Decision:
    entered: bool
    why: str


def decide(stage: Stage, best: Candidate, *, out_of_time: bool, earlier: Sequence[Candidate] = ()) -> Decision:
    """Whether to enter a rung. best: the best candidate so far, at first the float model itself.

    earlier: every candidate so far. A rung that keeps the speed of what it starts from is entered for one that has
    the speed and the size already and misses something else.
    """
    compressed = [candidate for candidate in earlier if candidate.form != "float" and candidate.artefact]
    if stage.kind in KEEPS_SPEED and compressed:
        return _decide_for_quality(stage, best, compressed, out_of_time=out_of_time)
    missed = [gate for gate in best.gates if gate.outcome != "pass"]
    if out_of_time:
        return Decision(entered=False, why="the budget is used up")
    if not missed and stage.run == "always":
        return Decision(entered=True, why=f"run: always ({best.name} passes every gate already)")
    if not missed:
        return Decision(entered=False, why=f"{best.name} passes every gate already")
    reachable = [gate for gate in missed if gate.metric in CHANGES[stage.kind]]
    if not reachable and stage.run != "always":
        names = ", ".join(dict.fromkeys(gate.metric for gate in missed))
        return Decision(entered=False, why=f"{best.name} misses {names}, which {stage.kind} cannot raise")
    return Decision(entered=True, why=f"{best.name} misses {'; '.join(map(sentence, reachable or missed))}")


def _decide_for_quality(
    stage: Stage, best: Candidate, compressed: Sequence[Candidate], *, out_of_time: bool
) -> Decision:
    """Whether a compressed candidate is fast and small enough, and only what training can mend is missed."""
    if out_of_time:
        return Decision(entered=False, why="the budget is used up")
    if best.outcome == "pass":
        why = f"{best.name} passes every gate already"
        always = stage.run == "always"
        return Decision(entered=always, why=f"run: always ({why})" if always else why)
    fixed = min(compressed, key=lambda one: len(_missed_of(one, CHANGES[stage.kind])))
    beyond = _missed_of(fixed, CHANGES[stage.kind])
    if beyond and stage.run != "always":
        names = ", ".join(dict.fromkeys(gate.metric for gate in beyond))
        return Decision(entered=False, why=f"{fixed.name} misses {names}, which {stage.kind} cannot change")
    missed = [gate for gate in fixed.gates if gate.outcome != "pass"]
    return Decision(entered=True, why=f"{fixed.name} misses {'; '.join(map(sentence, missed)) or 'nothing'}")


def _missed_of(candidate: Candidate, metrics: frozenset[str]) -> list[GateResult]:
    return [gate for gate in candidate.gates if gate.outcome != "pass" and gate.metric in metrics]


def choose(candidates: Sequence[Candidate]) -> Candidate | None:
    """The fastest candidate that passes every gate; of those no different in speed, the closest to the float model.

    A file whose integer sums overflow on this CPU is taken only when no other passes: its outputs differ between CPUs.
    """
    passing = [candidate for candidate in candidates if candidate.outcome == "pass"]
    sound = [candidate for candidate in passing if not saturates(candidate)] or passing
    return _fastest(sound)


def best_so_far(candidates: Sequence[Candidate]) -> Candidate | None:
    """The winner, or else the candidate that misses the fewest gates, then the fastest; the float model comes last."""
    winner = choose(candidates)
    usable = [candidate for candidate in candidates if candidate.artefact]
    if winner or not usable:
        return winner
    fewest = min(_missed(candidate) for candidate in usable)
    return _fastest([candidate for candidate in usable if _missed(candidate) == fewest])


def saturates(candidate: Candidate) -> bool:
    return candidate.saturates


def gain(candidate: Candidate) -> str:
    """What the candidate gained, in words: `2.05x [1.98, 2.11] faster, 0.26x the size`."""
    speed, size = candidate.metrics.get("speedup"), candidate.metrics.get("size_ratio")
    parts = []
    if speed and speed.value is not None:
        word = _speed_word(speed)
        parts.append(word)
    if size and size.value is not None:
        parts.append(f"{size.value:.2f}x the size")
    return ", ".join(parts) or "not measured"


def risk(candidate: Candidate) -> str:
    """What the candidate lost: the drop with its bound."""
    return "; ".join(_drop(gate) for gate in candidate.gates if "drop" in gate.limit) or "no accuracy gate"


def _drop(gate: GateResult) -> str:
    bound = "" if gate.high is None else f" (at most {gate.high:.4f})"
    return f"{gate.metric} {-(gate.value or 0):+.4f}{bound}"


def _speed_word(speed: Value) -> str:
    interval = "" if speed.low is None or speed.high is None else f" [{speed.low:.2f}, {speed.high:.2f}]"
    if speed.low is not None and speed.high is not None and speed.low <= 1 <= speed.high:
        return f"no difference in speed ({speed.value:.2f}x{interval})"
    return f"{speed.value:.2f}x{interval} " + ("faster" if (speed.value or 0) > 1 else "the speed: slower")


def _missed(candidate: Candidate) -> int:
    return sum(gate.outcome != "pass" for gate in candidate.gates)


def _fastest(candidates: Sequence[Candidate]) -> Candidate | None:
    """Of the candidates no different in speed from the fastest, the one closest to the float model."""
    if not candidates:
        return None
    fastest = max(candidates, key=lambda candidate: _speed(candidate).value or 0.0)
    level = [candidate for candidate in candidates if _no_slower(_speed(candidate), _speed(fastest))]
    return max(level, key=_closeness)


def _no_slower(value: Value, fastest: Value) -> bool:
    """Whether the intervals overlap or the figures are closer than repeated runs are."""
    overlap = (value.high or value.value or 0.0) >= (fastest.low or fastest.value or 0.0)
    return overlap or (value.value or 0.0) >= (1 - SPEED_TIE) * (fastest.value or 0.0)


def _closeness(candidate: Candidate) -> float:
    """SQNR in dB against the float model; a file identical to it has none, and nothing is closer."""
    found = candidate.metrics.get("sqnr_db")
    if found is None:
        return float("-inf") if candidate.form != "float" else float("inf")
    return float("inf") if found.value is None else found.value


def _speed(candidate: Candidate) -> Value:
    """The speed-up at the batch size where it is smallest."""
    values = [Value(**row["speedup"]) for row in candidate.by_batch]
    return min(values, key=lambda value: value.value or 0.0) if values else Value(value=1.0, n=0)
