"""The tables that the benchmarks publish are what their result files say."""

import importlib.util
import json
import sys
from pathlib import Path

from compress.measure.stats import Interval

ROOT = Path(__file__).parents[1]


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_published_verdicts_are_those_of_the_result_file():
    document = json.loads((ROOT / "benchmarks" / "results" / "verdict.json").read_text())
    page, readme = ((ROOT / name).read_text() for name in ("docs/verdict-benchmark.md", "README.md"))
    assert len(document["rows"]) >= 20
    for one in document["rows"]:
        measured = f"{one['measured']['value']:.2f} [{one['measured']['low']:.2f}, {one['measured']['high']:.2f}]"
        assert f"| {one['net']} | {one['batch']} | {one['method']} | {one['class_']} |" in page
        assert f"{measured} ({one['measured']['n']})" in page
        assert f"| {one['net']} | {one['batch']} | {one['method']} |" in readme
        assert measured in readme
    assert document["summary"]["hard_held"] == sum(one["hard_held"] for one in document["rows"])
    assert document["summary"]["sign_right"] == sum(one["sign_right"] for one in document["rows"])


def test_the_published_remedies_are_those_of_the_result_file():
    remedies = script("remedies")
    for one in json.loads(remedies.RESULTS.read_text())["rows"]:
        made = remedies.Row(**(one | {"measured": Interval(**one["measured"])}))
        assert " | ".join(made.cells()) in remedies.PAGE.read_text()
