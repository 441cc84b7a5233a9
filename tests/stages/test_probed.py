"""Which methods are probed on a file, how the minute is shared, and where the results go."""

import json

import jsonschema
import numpy as np
import pytest

from compress.__main__ import main
from compress.analyze.methods import Asked, methods
from compress.analyze.schema import analysis_schema
from compress.errors import InputError
from compress.export.onnx import export_onnx
from compress.measure.isolated import Bench
from compress.measure.stats import Interval
from compress.probe.methods import METHODS
from compress.probe.probe import ProbeResult
from compress.stages import probed
from compress.zoo import nets

BENCH = Bench(provider="cpu", threads=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probed")
    for name in ("digits_cnn", "digits_encoder"):
        export_onnx(getattr(nets, name)(), feeds(2), folder / f"{name}.onnx", ["output"])
    return folder


def feeds(batch):
    return {"input": np.zeros((batch, 1, 8, 8), np.float32)}


@pytest.fixture
def asked(monkeypatch):
    """Methods and seconds asked for; each probe answers 2x in no time, half-depth with nothing, int8 is refused."""
    seen = {}

    def answer(path, method, feeds, bench, budget_seconds, nodes):
        seen[method] = budget_seconds
        if method == "int8":
            raise InputError(str(path), "refused by the runtime", "Give up")
        speedup = None if method == "half-depth" else Interval(value=2.0, low=1.9, high=2.1, n=9)
        return ProbeResult(method=method, speedup=speedup, covered_share=0.4, seconds=0.0, note="made up")

    monkeypatch.setattr(probed, "probe", answer)
    return seen


def probe_all(files, name, batch=1):
    said = []
    return probed.probe_file(files / f"{name}.onnx", feeds(batch), BENCH, [], said.append), said


def test_methods_for_matrix_products_are_probed_only_where_these_are_the_work(files, asked):
    probe_all(files, "digits_cnn")
    convolutional = set(asked)
    asked.clear()
    probe_all(files, "digits_encoder")
    assert set(asked) - convolutional == {"dynamic-int8", "weights-int8", "weights-int4"}
    assert {"int8", "prune-25", "prune-50", "prune-75", "half-depth", "batch-8"} == convolutional


def test_batches_are_compared_only_with_a_pass_of_one(files, asked):
    probe_all(files, "digits_cnn", batch=2)
    assert "batch-8" not in asked


def test_the_time_is_shared_and_progress_is_said(files, asked):
    _, said = probe_all(files, "digits_encoder")
    assert all(0 < seconds <= probed.BUDGET / 4 for seconds in asked.values())
    assert len(said) == len(asked)
    assert said[0].startswith("probing half-depth (1 of 9, 60 s left)")


def test_a_refused_probe_is_a_note_and_a_student_of_half_the_width_shares_one(files, asked):
    probes, _ = probe_all(files, "digits_cnn")
    assert probes.results["int8 W8A8"].speedup is None
    assert "refused by the runtime" in probes.results["int8 W8A8"].note
    assert probes.results["half-width student"] is probes.results["prune 50%"]
    assert set(probes.spans) == {"batch 8", "prune 25%", "prune 50%", "prune 75%", "half-width student"}


def test_every_probe_has_a_method_and_a_row_of_its_own():
    rows = [name for name, _ in methods(Asked())]
    assert set(probed.PREDICTIONS) <= set(METHODS)
    assert {*probed.PREDICTIONS.values(), *probed.SAME_AS} <= set(rows)
    assert len(set(probed.PREDICTIONS.values())) == len(probed.PREDICTIONS)


def test_the_document_has_the_interval_and_the_covered_share_beside_each_row(files, asked):
    probes, _ = probe_all(files, "digits_cnn")
    stages = [{"name": name} for name in ("prune 25%", "int8 W8A8", "KV int8")]
    found = probed.with_probes({"stages": stages}, probes)
    assert [row["probe_covered_share"] for row in found["stages"]] == [0.4, None, None]
    assert {one["prediction"] for one in found["probes"]} == set(probes.results)
    assert probed.with_probes({"stages": stages}, probed.NO_PROBES) == {"stages": stages}


@pytest.mark.slow
def test_probes_of_a_real_net_fill_the_rows_through_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path))
    monkeypatch.setattr(probed, "BUDGET", 24.0)
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "compress.zoo:digits_cnn", "--input-shape", "1,1,8,8", "--probe", "--json"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    jsonschema.validate(document, analysis_schema())
    rows = {row["name"]: row for row in document["stages"]}
    for name in ("int8 W8A8", "prune 50%", "half-width student", "batch 8", "graph mode"):
        span = rows[name]["probe_speedup"]
        assert 0 < span["low"] <= span["value"] <= span["high"]
        assert 0 < rows[name]["probe_covered_share"] <= 1
    assert "Against eager torch" in rows["graph mode"]["why"]
    # A net this small spends its time in starting ops, which a graph does once.
    assert rows["graph mode"]["probe_speedup"]["low"] > 1
    assert "probing int8" in shown.err
