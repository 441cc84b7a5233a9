"""The benchmark of the verdict makes rows of the right shape, and counts them right. Never how long anything took."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "verdict.py"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="benchmarks do not come with an installed package")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdict")
    subprocess.run([sys.executable, SCRIPT, "--quick", "--out", folder], cwd=ROOT, check=True, capture_output=True)
    (result,) = folder.glob("verdict-*.json")
    return json.loads(result.read_text()), (folder / "verdict-benchmark.md").read_text()


@pytest.mark.slow
def test_every_row_has_a_prediction_and_a_measurement_beside_it(made):
    document, _ = made
    assert [(row["net"], row["method"]) for row in document["rows"]] == [
        ("digits_cnn", "int8"),
        ("digits_cnn", "prune-50"),
        ("lstm", "batch-8"),
    ]
    for row in document["rows"]:
        assert row["measured"]["low"] <= row["measured"]["value"] <= row["measured"]["high"]
        assert row["measured"]["n"] >= 4
        probed = row["probe"]["speedup"]
        assert row["answer"] == (probed["value"] if row["answered_by"] == "probe" else row["expected"])
        assert row["hard_held"] == (row["hard"] is None or row["measured"]["low"] <= row["hard"])
    assert document["quick"]
    assert document["machine"]["name"]


@pytest.mark.slow
def test_the_summary_counts_the_rows(made):
    document, page = made
    rows, found = document["rows"], document["summary"]
    assert found["rows"] == 3
    for name in ("hard_held", "sign_right", "sign_strict", "expected_sign_right"):
        assert found[name] == sum(row[name] for row in rows)
    table = page.split("<!-- rows -->")[1].split("<!-- /rows -->")[0]
    assert sum(line.startswith("| ") for line in table.splitlines()) == 2 + 3
