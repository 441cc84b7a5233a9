"""The tables that the benchmarks publish are what their result files say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from compress.measure.stats import Interval

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch):
    """Loads a benchmark by name, with its folder's own modules at hand as when it is run."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return loaded


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_published_verdicts_are_those_of_the_result_files(script):
    verdict = script("verdict")
    known = verdict.documents(verdict.RESULTS)
    page, readme = (ROOT / "docs" / verdict.PAGE).read_text(), verdict.README.read_text()
    assert verdict.with_tables(page, known) == page
    assert verdict.with_short_table(readme, known[0]) == readme
    for document in known:
        assert len(document["rows"]) >= 20
        assert document["summary"]["hard_held"] == sum(one["hard_held"] for one in document["rows"])
        assert document["summary"]["sign_right"] == sum(one["sign_right"] for one in document["rows"])


def test_the_published_comparison_with_peers_is_that_of_the_result_file(script):
    peers = script("peers")
    document = json.loads(peers.RESULTS.read_text())
    assert peers.with_table(peers.PAGE.read_text(), document) == peers.PAGE.read_text()
    for row in peers.rows_in(document):
        assert row.tool in {"compress ptq", "compress-step", *peers.ENVIRONMENTS}
        assert row.note or row.drop is not None


def test_the_published_remedies_are_those_of_the_result_file(script):
    remedies = script("remedies")
    for one in json.loads(remedies.RESULTS.read_text())["rows"]:
        made = remedies.Row(**(one | {"measured": Interval(**one["measured"])}))
        assert " | ".join(made.cells()) in remedies.PAGE.read_text()
