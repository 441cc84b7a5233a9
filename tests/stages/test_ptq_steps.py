"""What PTQ's steps start from, when they are skipped and why."""

from dataclasses import replace
from typing import Any

import pytest

from compress.candidate import Candidate, GateResult, Outcome, Value
from compress.quantize.schemes import SCHEMES
from compress.quantize.ways import METHOD_STEPS, Way, steps_for, ways_of
from compress.recipe.spec import Recipe
from compress.stages.judge import house_gates
from compress.stages.ptq_steps import leader, mixed_bases, skip_reason
from compress.stages.ptq_try import Tried

BY_NAME = {scheme.name: scheme for scheme in SCHEMES}
REDUCED, FULL, DYNAMIC = (
    Way(scheme=BY_NAME[name]) for name in ("u8s8-channel-reduced", "u8s8-channel", "dynamic-u8-tensor")
)


def gate(metric: str, outcome: Outcome, value: float = 0.0, limit: str = "min") -> GateResult:
    threshold = 0.01 if limit == "max_drop" else 1.5
    return GateResult(
        metric=metric, limit=limit, threshold=threshold, value=value, low=None, high=None, outcome=outcome
    )


def tried(way: Way | None, sqnr: float, *gates: GateResult, saturates: bool = False, made: bool = True) -> Tried:
    outcome: Outcome = "pass" if all(one.outcome == "pass" for one in gates) else "fail"
    audit: dict[str, Any] = {"saturation": {"saturates": saturates}}
    name = "weights-int4" if way is None else way.name
    candidate = Candidate(
        name=name, stage="ptq", form="int8", parent="model", artefact="model.onnx" if made else None,
        metrics={"sqnr_db": Value(value=sqnr, n=10)}, gates=list(gates), outcome=outcome, audit=audit,
    )  # fmt: skip
    return Tried(way=way, candidate=candidate)


LOSES = gate("top1", "fail", 0.05, "max_drop")
KEEPS = gate("top1", "pass", 0.0, "max_drop")
FAST, SLOW = gate("speedup", "pass", 2.0), gate("speedup", "fail", 0.8)


def test_a_step_starts_from_the_closest_file_that_is_fast_enough():
    slow, fast, close = tried(FULL, 40, LOSES, SLOW), tried(REDUCED, 20, LOSES, FAST), tried(FULL, 30, LOSES, FAST)
    assert leader([slow, fast, close]) is close
    assert leader([slow]) is None
    assert leader([tried(DYNAMIC, 50, LOSES, FAST), tried(None, 50, LOSES, FAST)]) is None
    assert leader([tried(FULL, 50, made=False)]) is None


def test_a_file_whose_sums_overflow_is_not_built_upon_where_there_is_a_choice():
    overflows, sound = tried(FULL, 40, LOSES, saturates=True), tried(REDUCED, 20, LOSES)
    assert leader([overflows, sound]) is sound
    assert leader([overflows]) is overflows


def test_a_step_that_made_things_worse_is_not_built_upon():
    better = tried(replace(REDUCED, ranges="mse"), 25, LOSES)
    worse = [tried(replace(REDUCED, ranges="mse", bias=True), 24, LOSES), tried(replace(REDUCED, learn=True), 3, LOSES)]
    assert leader([tried(REDUCED, 20, LOSES), better, *worse]) is better


def test_a_smaller_drop_counts_before_closeness_and_gates_passed_before_both():
    small, large = gate("top1", "fail", 0.03, "max_drop"), gate("top1", "fail", 0.20, "max_drop")
    few, close = tried(REDUCED, 5, small), tried(FULL, 9, large)
    assert leader([few, close]) is few
    assert (
        leader([few, close, tried(FULL, 1, gate("top1", "undecided", 0.01, "max_drop"))]).candidate.gates[0].value
        == 0.01
    )


@pytest.mark.parametrize("step", ["clip", "equalize", "round", "mixed"])
def test_where_only_speed_is_missed_no_step_can_help(step):
    reason = skip_reason(step, [tried(REDUCED, 30, KEEPS, SLOW), tried(FULL, 30, KEEPS, SLOW)])
    assert "misses speedup 0.8" in reason
    assert reason.endswith(f"which {step} cannot change")


def test_where_batch_mates_are_the_only_trouble_there_is_nothing_to_do_for_the_static_files():
    mates = gate("batch_variance", "fail", 0.03)
    assert "no static file" in skip_reason("clip", [tried(DYNAMIC, 40, KEEPS, mates)])


def test_a_step_is_entered_where_quality_is_missed_and_skipped_where_it_is_not():
    assert skip_reason("clip", [tried(REDUCED, 30, LOSES, FAST)]) == ""
    assert skip_reason("clip", [tried(REDUCED, 30, LOSES, gate("speedup", "undecided"))]) == ""
    assert "misses nothing that clip can change" in skip_reason("clip", [tried(REDUCED, 30, KEEPS, FAST)])


def test_mixed_precision_starts_from_seven_bits_where_an_overflow_may_hide():
    both = [tried(FULL, 20, LOSES), tried(REDUCED, 19, LOSES), tried(replace(FULL, bias=True), 22, LOSES)]
    assert mixed_bases(both, overflows=True) == [replace(REDUCED, bias=True), replace(FULL, bias=True)]
    assert mixed_bases(both, overflows=False) == [replace(FULL, bias=True), replace(REDUCED, bias=True)]
    assert mixed_bases(both[:1], overflows=True) == [FULL]
    assert mixed_bases([], overflows=True) == []


def test_steps_are_tried_from_cheap_to_dear_and_each_net_gets_its_own():
    assert steps_for(linear_heavy=False) == ("variants", "clip", "equalize", "round", "mixed")
    assert steps_for(linear_heavy=True) == ("variants", "clip", "smooth", "round", "mixed")


def test_a_method_names_one_way_of_its_step():
    for method, step in METHOD_STEPS.items():
        ways = ways_of(step, REDUCED, method)
        assert len(ways) == (0 if step == "mixed" else 1), method
    assert [way.name for way in ways_of("clip", REDUCED, "clip-mse")] == ["u8s8-channel-reduced+clip-mse"]
    assert [way.name for way in ways_of("equalize", replace(REDUCED, ranges="mse"))] == [
        "u8s8-channel-reduced+clip-mse+bias",
        "u8s8-channel-reduced+clip-mse+equalize+bias",
    ]


def recipe(batches: list[int], *gates: dict[str, Any]) -> Recipe:
    return Recipe.model_validate({
        "schema": 1, "name": "r", "model": {"ref": "a:b"}, "data": {"ref": "a:b"}, "stages": [{}],
        "target": {"batch_sizes": batches}, "gates": list(gates) or [{"metric": "top1", "max_drop": 0.01}],
    })  # fmt: skip


def test_batch_mates_are_a_gate_wherever_batches_are_served_unless_the_recipe_has_its_own():
    (gate_,) = house_gates(recipe([1, 8]))
    assert (gate_.metric, gate_.max) == ("batch_variance", 0.002)
    assert house_gates(recipe([1])) == []
    assert house_gates(recipe([8], {"metric": "batch_variance", "max": 0.5})) == []
