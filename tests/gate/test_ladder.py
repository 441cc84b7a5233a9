"""The ladder: which rung is entered, which candidate wins, and the reasons given."""

from typing import Any

import pytest

from compress.candidate import Candidate, GateResult, Outcome, Value
from compress.ladder import CHANGES, WHAT, best_so_far, choose, decide, gain, risk, saturates
from compress.recipe.spec import STAGE_TYPES, Ptq, Qat


def gate(name: str, outcome: Outcome, limit: str = "min") -> GateResult:
    return GateResult(metric=name, limit=limit, threshold=1.5, value=1.0, low=0.9, high=1.1, outcome=outcome)


def speed(value: float, half: float = 0.05, batch: int = 1) -> dict[str, Any]:
    return {"batch": batch, "speedup": vars(Value(value=value, low=value - half, high=value + half, n=40, batch=batch))}


def candidate(name: str, outcome: Outcome = "pass", *speeds: dict[str, Any], **changes: Any) -> Candidate:
    given: dict[str, Any] = {"stage": "ptq", "form": "int8", "parent": "model", "artefact": f"{name}.onnx"}
    return Candidate(name=name, outcome=outcome, by_batch=list(speeds), **(given | changes))


MISSES_SPEED = candidate("model", "fail", gates=[gate("top1", "pass"), gate("speedup", "fail")])
MISSES_TOP1 = candidate("model", "fail", gates=[gate("top1", "fail"), gate("speedup", "pass")])
MISSES_NOTHING = candidate("model", "pass", gates=[gate("top1", "pass")])
UNDECIDED = candidate("model", "undecided", gates=[gate("latency_p99_ms", "undecided")])


@pytest.mark.parametrize(
    ("best", "run", "late", "entered", "why"),
    [
        (MISSES_SPEED, "if_needed", False, True, "model misses speedup 1 [0.9, 1.1], at least 1.5: fail"),
        (MISSES_SPEED, "if_needed", True, False, "the budget is used up"),
        (MISSES_SPEED, "always", True, False, "the budget is used up"),
        (MISSES_NOTHING, "if_needed", False, False, "model passes every gate already"),
        (MISSES_NOTHING, "always", False, True, "run: always (model passes every gate already)"),
        (MISSES_TOP1, "if_needed", False, False, "model misses top1, which ptq cannot raise"),
        (MISSES_TOP1, "always", False, True, "model misses top1 1 [0.9, 1.1], at least 1.5: fail"),
        (UNDECIDED, "if_needed", False, True, "model misses latency_p99_ms"),
    ],
)
def test_a_rung_is_entered_for_a_reason(best: Candidate, run: Any, late: bool, entered: bool, why: str):
    decision = decide(Ptq(run=run), best, out_of_time=late)
    assert decision.entered is entered
    assert decision.why.startswith(why)


ROUNDED_WELL = candidate("ptq/a", "pass", gates=[gate("top1", "pass"), gate("speedup", "pass")])
ROUNDED_BADLY = candidate("ptq/b", "fail", gates=[gate("top1", "fail"), gate("speedup", "pass")])
TOO_SLOW = candidate("ptq/c", "fail", gates=[gate("top1", "fail"), gate("speedup", "fail")])
BROKEN = candidate("ptq/d", "fail", artefact=None)
FLOAT = candidate("model", "fail", gates=[gate("top1", "pass"), gate("speedup", "fail")], form="float")


@pytest.mark.parametrize(
    ("best", "earlier", "run", "entered", "why"),
    [
        (
            FLOAT,
            [FLOAT, TOO_SLOW, ROUNDED_BADLY],
            "if_needed",
            True,
            "ptq/b misses top1 1 [0.9, 1.1], at least 1.5: fail",
        ),
        (FLOAT, [FLOAT, TOO_SLOW], "if_needed", False, "ptq/c misses speedup, which qat cannot change"),
        (FLOAT, [FLOAT, TOO_SLOW], "always", True, "ptq/c misses top1"),
        (ROUNDED_WELL, [FLOAT, ROUNDED_WELL], "if_needed", False, "ptq/a passes every gate already"),
        (ROUNDED_WELL, [FLOAT, ROUNDED_WELL], "always", True, "run: always (ptq/a passes every gate already)"),
        (FLOAT, [FLOAT], "if_needed", True, "model misses speedup"),
        (FLOAT, [FLOAT, BROKEN], "if_needed", True, "model misses speedup"),
    ],
)
def test_training_is_entered_for_quality_alone(best, earlier, run: Any, entered: bool, why: str):
    decision = decide(Qat(run=run), best, out_of_time=False, earlier=earlier)
    assert decision.entered is entered
    assert decision.why.startswith(why)
    assert not decide(Qat(run=run), best, out_of_time=True, earlier=earlier).entered


def test_the_ladder_knows_every_stage():
    assert set(CHANGES) == set(WHAT) == set(STAGE_TYPES)


def test_the_fastest_that_passes_wins():
    slow, fast = candidate("slow", "pass", speed(1.6)), candidate("fast", "pass", speed(2.5))
    faster = candidate("faster", "fail", speed(9.0))
    assert choose([slow, fast, faster]) is fast
    assert choose([faster]) is None
    assert choose([]) is None


def test_no_difference_in_speed_goes_to_the_earlier_one():
    one, two = candidate("one", "pass", speed(2.00)), candidate("two", "pass", speed(2.04))
    assert choose([one, two]) is one
    assert choose([two, one]) is two


def test_speed_is_taken_at_the_batch_size_where_it_is_smallest():
    uneven = candidate("uneven", "pass", speed(4.0), speed(1.2, batch=16))
    even = candidate("even", "pass", speed(2.0), speed(2.0, batch=16))
    assert choose([uneven, even]) is even


def test_a_file_that_saturates_is_taken_only_when_nothing_else_passes():
    wild = candidate("wild", "pass", speed(4.0), audit={"saturation": {"saturates": True}})
    sound = candidate("sound", "pass", speed(1.6), audit={"saturation": {"saturates": False}})
    failing = candidate("failing", "fail", speed(1.6))
    assert saturates(wild)
    assert not any(map(saturates, (sound, failing, candidate("bare", audit={}))))
    assert choose([wild, sound]) is sound
    assert choose([wild, failing]) is wild


def test_the_best_so_far_misses_the_fewest_gates_then_is_the_fastest():
    two = candidate("two", "fail", speed(5.0), gates=[gate("a", "fail"), gate("b", "undecided")])
    slow = candidate("slow", "fail", speed(1.1), gates=[gate("a", "fail"), gate("b", "pass")])
    fast = candidate("fast", "fail", speed(1.9), gates=[gate("a", "fail"), gate("b", "pass")])
    assert best_so_far([two, slow, fast]) is fast
    winner = candidate("winner", "pass", speed(1.0), gates=[gate("a", "pass")])
    assert best_so_far([two, fast, winner]) is winner


def test_a_candidate_without_a_file_is_never_the_best_so_far():
    broken = candidate("broken", "fail", artefact=None)
    left = candidate("left", "fail", gates=[gate("a", "fail")])
    assert best_so_far([broken]) is None
    assert best_so_far([broken, left]) is left


@pytest.mark.parametrize(
    ("low", "value", "high", "words"),
    [
        (1.98, 2.05, 2.11, "2.05x [1.98, 2.11] faster"),
        (0.97, 1.01, 1.04, "no difference in speed (1.01x [0.97, 1.04])"),
        (0.4, 0.5, 0.6, "0.50x [0.40, 0.60] the speed: slower"),
    ],
)
def test_a_gain_in_words_never_hides_its_interval(low: float, value: float, high: float, words: str):
    metrics = {"speedup": Value(value=value, low=low, high=high, n=40), "size_ratio": Value(value=0.26, n=1)}
    assert gain(candidate("a", metrics=metrics)) == f"{words}, 0.26x the size"


def test_what_was_not_measured_or_not_promised_is_said():
    assert gain(candidate("a")) == "not measured"
    assert risk(candidate("a")) == "no accuracy gate"
    assert risk(candidate("a", gates=[gate("top1", "pass", "max_drop")])) == "top1 -1.0000 (at most 1.1000)"
