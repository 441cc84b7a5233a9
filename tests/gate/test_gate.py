"""Gates: what passes, what fails, what is undecided, and how much more would decide."""

import numpy as np
import pytest

from compress import gate as gates
from compress.candidate import GateResult, Value
from compress.errors import EXIT_GATE, GateError
from compress.gate import Paired, judge_drop, judge_value, outcome_of, sentence, worst_of
from compress.measure import stats
from compress.metrics import Metric
from compress.recipe.spec import Gate


def metric(direction: str = "higher", chance: float | None = 0.5) -> Metric:
    return Metric(name="score", direction=direction, chance=chance, score=lambda outputs, labels: labels)  # type: ignore[arg-type]


def drop(limit: float, relative: bool = False) -> Gate:
    return Gate(metric="score", max_relative_drop=limit) if relative else Gate(metric="score", max_drop=limit)


def paired(lost: int, won: int, n: int, right: int | None = None) -> Paired:
    """0/1 scores of n samples: `lost` only the baseline has right, `won` only the candidate, `right` both."""
    both = n - lost - won if right is None else right
    baseline = np.zeros(n)
    candidate = np.zeros(n)
    baseline[: both + lost] = 1
    candidate[:both] = 1
    candidate[both + lost : both + lost + won] = 1
    return Paired(split="select", baseline=baseline, candidate=candidate)


@pytest.mark.parametrize(
    ("lost", "won", "n", "limit", "outcome"),
    [
        (0, 0, 1000, 0.01, "pass"),
        (0, 0, 100, 0.01, "undecided"),  # nothing lost, but too few samples to promise a hundredth
        (2, 10, 500, 0.01, "pass"),
        (8, 2, 1000, 0.01, "undecided"),
        (40, 2, 1000, 0.01, "fail"),
        (15, 0, 100, 0.01, "fail"),
        (40, 2, 1000, 0.10, "pass"),
        (1, 0, 10_000, 0.0, "undecided"),
        (100, 0, 10_000, 0.0, "fail"),
    ],
)
def test_an_accuracy_gate_asks_the_bound_of_the_drop(lost: int, won: int, n: int, limit: float, outcome: str):
    found = judge_drop(drop(limit), metric(), paired(lost, won, n))
    assert found.outcome == outcome
    assert found.value == pytest.approx((lost - won) / n)
    assert found.low <= found.value <= found.high
    assert found.high == pytest.approx(stats.paired_share_drop_high(lost, won, n))
    assert (found.limit, found.threshold) == ("max_drop", limit)
    assert f"paired on {n} samples of select: {lost} lost, {won} won" in found.note
    assert (found.needed_n is None) or outcome == "undecided"


def test_a_relative_drop_is_a_share_of_the_baselines_score():
    scores = paired(20, 0, 1000, right=480)  # baseline 0.5, drop 0.02: relative 0.04
    found = judge_drop(drop(0.06, relative=True), metric(), scores)
    absolute = judge_drop(drop(0.03), metric(), scores)
    assert (found.limit, found.threshold, found.outcome) == ("max_relative_drop", 0.06, absolute.outcome)
    assert (found.value, found.low, found.high) == pytest.approx((0.04, absolute.low * 2, absolute.high * 2))


def test_a_baseline_of_zero_allows_no_relative_drop_and_divides_by_nothing():
    scores = Paired(split="select", baseline=np.zeros(100), candidate=np.zeros(100))
    found = judge_drop(drop(0.1, relative=True), metric(), scores)
    assert found.outcome == "undecided"
    assert np.isfinite([found.value, found.low, found.high]).all()


@pytest.mark.parametrize(("shift", "outcome"), [(0.0, "pass"), (-0.2, "pass"), (0.2, "fail")])
def test_where_lower_is_better_a_rise_is_the_drop(shift: float, outcome: str):
    rng = np.random.default_rng(0)
    baseline = rng.random(400)
    candidate = baseline + shift + rng.normal(0, 0.01, 400)
    found = judge_drop(drop(0.05), metric("lower"), Paired(split="confirm", baseline=baseline, candidate=candidate))
    assert found.outcome == outcome
    assert found.value == pytest.approx(shift, abs=0.01)
    mirrored = judge_drop(drop(0.05), metric(), Paired(split="confirm", baseline=-baseline, candidate=-candidate))
    assert (mirrored.value, mirrored.outcome) == (pytest.approx(found.value), found.outcome)


def test_the_samples_said_to_decide_do_decide_for_shares():
    for lost, won, n, limit in [(8, 2, 1000, 0.01), (3, 1, 300, 0.02), (30, 5, 2000, 0.01), (0, 0, 100, 0.01)]:
        first = judge_drop(drop(limit), metric(), paired(lost, won, n))
        assert first.outcome == "undecided"
        needed = first.needed_n
        assert needed is not None
        assert needed > n

        def extended(size: float, lost: int = lost, won: int = won, n: int = n, limit: float = limit) -> str:
            """The same rates on `size` samples."""
            more = paired(round(lost / n * size), round(won / n * size), round(size))
            return judge_drop(drop(limit), metric(), more).outcome

        assert extended(1.2 * needed) != "undecided"
        assert extended(0.8 * needed) == "undecided"


def test_the_samples_said_to_decide_do_decide_for_other_scores():
    rng = np.random.default_rng(4)
    drops = rng.normal(0, 0.2, 400)
    drops += 0.01 - drops.mean()

    def judge(sample: np.ndarray) -> GateResult:
        return judge_drop(
            drop(0.02), metric(), Paired(split="select", baseline=sample, candidate=np.zeros(len(sample)))
        )

    first = judge(drops)
    assert first.outcome == "undecided"
    assert first.needed_n is not None
    # Longer data with the same mean and spread: the sample again and again.
    assert judge(np.resize(drops, int(1.2 * first.needed_n) // 400 * 400 + 400)).outcome == "pass"
    assert judge(np.resize(drops, int(0.8 * first.needed_n) // 400 * 400)).outcome == "undecided"


def test_no_number_of_samples_decides_a_drop_on_the_limit():
    found = judge_drop(drop(0.01), metric(), paired(10, 0, 1000))
    assert (found.outcome, found.needed_n) == ("undecided", None)
    assert judge_drop(drop(0.0), metric(), paired(5, 5, 100)).needed_n is None


VALUES = [
    (Gate(metric="speedup", min=1.5), Value(value=2.0, low=1.9, high=2.1, n=50), "pass"),
    (Gate(metric="speedup", min=1.5), Value(value=1.5, low=1.5, high=1.6, n=50), "pass"),
    (Gate(metric="speedup", min=1.5), Value(value=1.6, low=1.4, high=1.8, n=50), "undecided"),
    (Gate(metric="speedup", min=1.5), Value(value=1.2, low=1.1, high=1.3, n=50), "fail"),
    (Gate(metric="latency_p99_ms", max=5.0), Value(value=4.0, low=3.0, high=4.9, n=500), "pass"),
    (Gate(metric="latency_p99_ms", max=5.0), Value(value=4.0, low=3.0, high=5.1, n=500), "undecided"),
    (Gate(metric="latency_p99_ms", max=5.0), Value(value=6.0, low=5.1, high=7.0, n=500), "fail"),
    (Gate(metric="size_bytes", max=100.0), Value(value=100.0, n=1), "pass"),
    (Gate(metric="size_bytes", max=100.0), Value(value=101.0, n=1), "fail"),
    (Gate(metric="size_ratio", min=0.0), Value(value=0.0, n=1), "pass"),
]


@pytest.mark.parametrize(("gate", "value", "outcome"), VALUES)
def test_a_figure_is_judged_by_the_end_of_its_interval(gate: Gate, value: Value, outcome: str):
    found = judge_value(gate, value)
    assert found.outcome == outcome
    assert (found.value, found.low, found.high) == (value.value, value.low, value.high)


def test_blocks_said_to_decide_follow_the_root_law():
    found = judge_value(Gate(metric="speedup", min=1.5), Value(value=1.6, low=1.4, high=1.9, n=50))
    assert found.needed_n == 200  # half width 0.2 must become 0.1
    on_limit = judge_value(Gate(metric="speedup", min=1.5), Value(value=1.5, low=1.4, high=1.6, n=50))
    assert (on_limit.outcome, on_limit.needed_n) == ("undecided", None)


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (None, "not measured"),
        (Value(value=None, n=0), "not measured"),
        (
            Value(value=None, n=100, note="P99 not supported by n=100 (needs 459)"),
            "P99 not supported by n=100 (needs 459)",
        ),
    ],
)
def test_what_was_not_measured_is_undecided_and_says_why(value: Value | None, note: str):
    found = judge_value(Gate(metric="latency_p99_ms", max=5.0), value)
    assert (found.outcome, found.value, found.note) == ("undecided", None, note)
    assert sentence(found) == f"latency_p99_ms at most 5: undecided ({note})"


def test_a_promise_is_judged_at_the_batch_size_where_it_is_hardest():
    one = Value(value=2.0, low=1.2, high=2.8, n=50, batch=1)
    two = Value(value=1.6, low=1.5, high=1.7, n=50, batch=16)
    assert worst_of(Gate(metric="speedup", min=1.5), [two, one]) is one
    assert worst_of(Gate(metric="latency_p50_ms", max=3.0), [two, one]) is one
    unmeasured = Value(value=None, n=3, batch=16)
    assert worst_of(Gate(metric="speedup", min=1.5), [one, unmeasured, two]) is unmeasured
    assert worst_of(Gate(metric="speedup", min=1.5), []) is None
    assert judge_value(Gate(metric="speedup", min=1.5), one).note == "batch 1"


def result(outcome: str, name: str = "top1") -> GateResult:
    return GateResult(
        metric=name, limit="min", threshold=1.0, value=1.0, low=None, high=None, outcome=outcome,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "accepted", "expected"),
    [
        ([], (), "pass"),
        (["pass", "pass"], (), "pass"),
        (["pass", "undecided"], (), "undecided"),
        (["pass", "undecided"], (1,), "pass"),
        (["pass", "undecided"], (0,), "undecided"),
        (["undecided", "undecided"], (1,), "undecided"),
        (["undecided", "fail"], (), "fail"),
        (["fail", "pass"], (0, 1), "fail"),
    ],
)
def test_fail_beats_undecided_beats_pass(outcomes: list[str], accepted: tuple[int, ...], expected: str):
    assert outcome_of([result(outcome) for outcome in outcomes], accepted) == expected


def test_only_gates_that_say_so_accept_undecided():
    given = [Gate(metric="top1", max_drop=0.01), Gate(metric="speedup", min=1.0, undecided="accept")]
    assert gates.accepted(given) == {1}


@pytest.mark.parametrize("right", [0, 40, 50, 56])
def test_a_baseline_at_chance_is_refused(right: int):
    scores = np.zeros(100)
    scores[:right] = 1
    with pytest.raises(GateError, match=r"chance is 0\.5000") as caught:
        gates.check_baseline(metric(), scores, "baseline onnxruntime-fp32")
    assert caught.value.exit_code == EXIT_GATE
    assert "(n=100)" in str(caught.value)


def test_a_baseline_above_chance_or_without_one_is_judged():
    scores = np.concatenate([np.ones(70), np.zeros(30)])
    gates.check_baseline(metric(), scores, "baseline")
    gates.check_baseline(metric(chance=None), np.zeros(100), "baseline")
    errors = np.random.default_rng(0).normal(0.3, 0.1, 100)
    gates.check_baseline(metric("lower", chance=0.5), errors, "baseline")
    with pytest.raises(GateError):
        gates.check_baseline(metric("lower", chance=0.3), errors, "baseline")


def test_a_gate_in_words_carries_its_interval():
    found = judge_value(Gate(metric="speedup", min=1.5), Value(value=2.05, low=1.98, high=2.11, n=50))
    assert sentence(found) == "speedup 2.05 [1.98, 2.11], at least 1.5: pass"
    undecided = judge_drop(drop(0.01), metric(), paired(8, 2, 1000))
    assert sentence(undecided).startswith("score drop 0.006 [")
    assert sentence(undecided).endswith(f"drop at most 0.01: undecided, about n={undecided.needed_n} would decide")
