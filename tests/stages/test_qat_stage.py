"""The decisions of the qat stage: what it starts from, which scheme it imitates, whether it is kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compress.candidate import Candidate, GateResult, Outcome, Value
from compress.errors import InputError
from compress.recipe.spec import Qat
from compress.stages import CHECKS, STAGES, qat
from compress.stages.baseline import FloatModel
from compress.stages.imitation import compare_with_imitation
from compress.stages.qat import best_rounded, scheme_of
from compress.train.loop import OutOfTimeError


def candidate(name: str, closeness: float | None, *missed: str, artefact: str | None = "model.onnx") -> Candidate:
    gates = [
        GateResult(metric=metric, limit="min", threshold=1, value=0, low=None, high=None, outcome="fail")
        for metric in missed
    ]
    metrics = {"sqnr_db": Value(value=closeness, n=9)}
    return Candidate(
        name=name, stage="ptq", form="int8", parent="model", artefact=artefact, gates=gates, metrics=metrics
    )


CLOSE = candidate("ptq/u8s8-channel-reduced", 30.0, "top1", "speedup")
FAST = candidate("ptq/u8s8-tensor", 12.0, "top1")
FASTER = candidate("ptq/u8u8-tensor", 9.0, "top1")
BROKEN = candidate("ptq/u8s8-channel", 99.0, artefact=None)
DYNAMIC = candidate("ptq/dynamic-u8-tensor", 99.0)


def test_training_starts_from_the_closest_file_that_is_fast_and_small_enough():
    assert best_rounded([CLOSE, FAST, FASTER, BROKEN, DYNAMIC]) is FAST
    assert best_rounded([CLOSE, DYNAMIC]) is CLOSE
    assert best_rounded([BROKEN, DYNAMIC]) is None
    assert best_rounded([]) is None


@pytest.mark.parametrize(
    ("spec", "parent", "name", "bits", "reduced"),
    [
        ({}, CLOSE, "u8s8-channel-reduced", 8, True),
        ({}, FAST, "u8s8-tensor", 8, False),
        ({"method": "u8u8-tensor"}, FAST, "u8u8-tensor", 8, False),
        ({"weight_bits": 4}, CLOSE, "u8s8-channel-w4", 4, False),
        ({"weight_bits": 3}, candidate("ptq/u8s8-tensor-w4", 1.0), "u8s8-tensor-w3", 3, False),
        ({"weight_bits": 4}, FASTER, "u8s8-tensor-w4", 4, False),
        ({"method": "u8s8-channel", "weight_bits": 4}, FAST, "u8s8-channel-w4", 4, False),
    ],
)
def test_the_scheme_is_the_recipes_or_that_of_the_best_file(spec: dict[str, Any], parent, name, bits, reduced):
    scheme = scheme_of(Qat(**spec), parent)
    assert (scheme.name, scheme.weight_bits, scheme.reduced) == (name, bits, reduced)


@pytest.mark.parametrize(
    ("flags", "name"), [(["avx2"], "u8s8-channel-reduced"), (["avx2", "avx_vnni"], "u8s8-channel")]
)
def test_without_any_file_the_scheme_is_the_safest_on_this_cpu(flags: list[str], name: str, monkeypatch):
    monkeypatch.setattr(qat.facts, "cpu_facts", lambda: {"flags": flags})
    assert scheme_of(Qat(), None).name == name


@pytest.mark.parametrize(
    ("gain", "outcome", "before", "kept"),
    [
        (0.2, "pass", "fail", True),
        (0.2, "fail", "fail", True),
        (0.0, "pass", "fail", True),
        (0.0, "pass", "pass", False),
        (0.0, "fail", "fail", False),
        (-0.2, "pass", "fail", False),
    ],
)
def test_training_is_kept_only_where_it_paid(
    gain, outcome: Outcome, before: Outcome, kept: bool, monkeypatch, tmp_path
):
    from compress.metrics import top1
    from compress.stages.trial import Trial

    n, labels = 400, np.arange(400) % 2
    scores = np.zeros(n)
    scores[: n // 2] = 1
    shifted = np.zeros(n)
    shifted[: int(n * (0.5 + gain))] = 1
    old = Trial(scores=scores, outputs=np.zeros(1), metrics={})
    new = Trial(scores=shifted, outputs=np.zeros(1), metrics={})

    class Here:
        inputs = type("Inputs", (), {"metric": top1(labels)})
        store = type("Store", (), {"digest_at": staticmethod(lambda _folder: "digest")})

    monkeypatch.setattr(qat, "evaluate", lambda *_args, **_kwargs: old)
    parent = Candidate(name="ptq/a", stage="ptq", form="int8", parent="model", artefact="a", outcome=before)
    made = Candidate(name="qat/a", stage="qat", form="int8", parent="model", artefact="b", outcome=outcome, note="note")
    found = qat._kept_or_not(Here(), made, new, parent, old)  # type: ignore[arg-type]
    assert found.outcome == (outcome if kept else "fail")
    assert found.note.startswith("rolled back, no better than without training") is not kept
    assert f"top1 {gain:+.4f}" in found.note
    assert qat._kept_or_not(Here(), made, new, None, old) is made  # type: ignore[arg-type]


def test_a_file_that_gives_something_else_than_was_trained_is_told(monkeypatch):
    wanted = np.random.default_rng(0).normal(size=(50, 4))

    class Session:
        def __init__(self, noise: float) -> None:
            self.noise = noise

        def run(self, _names: object, _feeds: object) -> list[np.ndarray]:
            return [wanted + self.noise * np.random.default_rng(1).normal(size=wanted.shape)]

    for noise, agrees, words in [(0.01, True, "serves what was trained (4"), (0.5, False, "does NOT serve what was")]:
        monkeypatch.setattr("compress.stages.imitation.open_session", lambda _path, noise=noise: Session(noise))
        found = compare_with_imitation("x", {}, wanted)  # type: ignore[arg-type]
        assert found.agrees is agrees
        assert words in found.note
        assert found.agreement is not None


START = FloatModel(path=Path("model.onnx"), entry=None, parity={})  # type: ignore[arg-type]


class Told:
    """A context whose listener only remembers."""

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.notes: list[str] = []
        self.earlier = ()
        self.listener = self

    def found(self, one: Candidate) -> None:
        self.candidates.append(one)

    def note(self, text: str) -> None:
        self.notes.append(text)


def run_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[Told, list[Candidate]]:
    def broken(_job: object) -> None:
        raise error

    told = Told()
    monkeypatch.setattr(qat, "_check_excluded", lambda _job: None)
    monkeypatch.setattr(qat, "train_rounded", broken)
    return told, qat.run(told, Qat(method="u8s8-tensor"), START, None)  # type: ignore[arg-type]


def test_a_training_that_breaks_is_a_failed_candidate_with_the_reason(monkeypatch):
    told, found = run_with(monkeypatch, InputError("stages.qat", "the loss became nan at step 3", "Lower it"))
    assert found == told.candidates
    assert (found[0].name, found[0].outcome, found[0].artefact) == ("qat/u8s8-tensor", "fail", None)
    assert found[0].note == "stages.qat: the loss became nan at step 3. Lower it."


def test_the_budgets_end_in_training_makes_no_candidate_and_says_how_to_go_on(monkeypatch):
    error = OutOfTimeError("stages.qat", "the budget ended after step 3 of 9", "Raise budget.minutes")
    told, found = run_with(monkeypatch, error)
    assert found == told.candidates == []
    assert told.notes == ["stages.qat: the budget ended after step 3 of 9. Raise budget.minutes."]


def test_every_check_belongs_to_a_stage():
    assert set(CHECKS) <= set(STAGES)
