"""The benchmarks' published tables are what their result files say, and their judgement of a row is right."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from compress.measure.stats import Interval

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def verdict():
    return script("verdict")


def span(low, value, high):
    return Interval(value=value, low=low, high=high, n=30)


def row(verdict, **changes):
    given = {"net": "a", "batch": 1, "method": "int8", "verdict": "compute", "hard": 2.0, "expected": 1.5,
             "probe": span(1.3, 1.4, 1.5), "covered": 1.0, "measured": span(1.2, 1.3, 1.4)}  # fmt: skip
    return verdict.Row(**(given | changes))


def test_a_row_is_right_when_the_answer_is_on_the_side_that_was_measured(verdict):
    assert row(verdict).sign_right
    assert not row(verdict, measured=span(0.7, 0.8, 0.9)).sign_right
    assert row(verdict, measured=span(0.9, 1.0, 1.1)).sign_right
    assert not row(verdict, measured=span(0.96, 1.0, 1.04)).sign_right
    assert row(verdict, measured=span(0.7, 0.8, 0.9), covered=0.2, expected=0.9).sign_right


def test_a_ceiling_holds_while_the_measured_interval_reaches_below_it(verdict):
    assert row(verdict, hard=1.25).ceiling_held
    assert not row(verdict, hard=1.15).ceiling_held
    assert row(verdict, hard=None).ceiling_held


def test_the_published_verdicts_are_those_of_the_result_file(verdict):
    document = json.loads(verdict.RESULTS.read_text())
    page, readme = verdict.PAGE.read_text(), verdict.README.read_text()
    assert len(document["rows"]) >= 20
    assert document["summary"]["hard_ceiling_held"] == sum(one["ceiling_held"] for one in document["rows"])
    for one in document["rows"]:
        given = {name: one[name] for name in ("net", "batch", "method", "verdict", "hard", "expected", "covered")}
        probe = Interval(**one["probe"]) if one["probe"] else None
        made = verdict.Row(**given, probe=probe, measured=Interval(**one["measured"]))
        assert (made.sign_right, made.ceiling_held) == (one["sign_right"], one["ceiling_held"])
        assert " | ".join(made.cells()) in page
        assert " | ".join(made.short_cells()) in readme


def test_the_published_remedies_are_those_of_the_result_file():
    remedies = script("remedies")
    for one in json.loads(remedies.RESULTS.read_text())["rows"]:
        made = remedies.Row(**(one | {"measured": Interval(**one["measured"])}))
        assert " | ".join(made.cells()) in remedies.PAGE.read_text()
