"""The JSON document: schema, order, units, measured times."""

import json
import subprocess
import sys
from typing import get_args

import jsonschema
import made
import pytest
import torch
from torch import nn

from compress.analyze.advice import advise
from compress.analyze.methods import Asked
from compress.analyze.predict import predict
from compress.analyze.schema import CONFIDENCES, analysis_schema
from compress.analyze.summary import analysis_dict, complete
from compress.analyze.trace import trace
from compress.analyze.verdict import Confidence, verdict

MODEL = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def _document(**options):
    return analysis_dict(trace(MODEL, (torch.ones(5, 3),)), **options)


def test_the_document_follows_its_schema_and_survives_json():
    schema = analysis_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(json.dumps(_document(measured=[{"module": "0", "time_ms": 1.0}])))
    jsonschema.validate(document, schema)
    del document["levels"]
    with pytest.raises(jsonschema.ValidationError, match="levels"):
        jsonschema.validate(document, schema)


def test_two_runs_write_the_same_text():
    assert json.dumps(_document()) == json.dumps(_document())


def test_work_intensity_and_ranking_are_written():
    document = _document()
    assert (document["model"]["macs"], document["model"]["flops"]) == (5 * 20, 10 * 20)
    assert document["top"]["macs"] == [0, 2]
    first = document["ops"][0]
    # Reads 5x3 inputs, 12 weights and 4 biases; the rectifier in its group writes the result.
    assert first["levels"]["G"]["total_bytes"] == 4 * (15 + 16)
    assert first["intensity_flop_per_byte"] == pytest.approx(120 / 124)
    assert document["levels"]["C"]["total_bytes"] == 4 * (15 + 16 + 10 + 10)


def test_measured_times_go_to_their_ops_and_the_rest_is_said():
    measured = [
        {"op": "aten::linear", "time_ms": 1.0},
        {"name": "1", "time_ms": 2.0},
        {"module": "2", "op": "aten::linear", "time_ms": 4.0},
        {"op": "aten::linear", "time_ms": 8.0},
    ]
    document = _document(measured=measured)
    assert [op["time_ms"] for op in document["ops"]] == [1.0, 2.0, 4.0]
    assert document["unattributed_ms"] == 8.0
    assert _document()["unattributed_ms"] is None


def test_the_cost_model_imports_neither_torch_nor_onnx():
    modules = ("table", "cost", "macs", "kinds", "traffic", "fusion", "caches", "build", "schema", "summary", "llm")
    modules += ("onnx_ops", "attribute", "rates", "costs", "bounds", "classes", "evidence", "verdict", "rescale")
    modules += ("narrow", "quantized", "methods", "predict", "advice", "llm_view", "llm_config", "llm_table")
    code = "import sys\n" + "".join(f"import compress.analyze.{name}\n" for name in modules)
    code += "assert not {'torch', 'onnx', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "measured", [None, made.measured(0.2, [{"module": "0", "time_ms": 0.1}])], ids=["counted", "measured"]
)
def test_the_complete_document_follows_its_schema_and_leaves_the_first_one_alone(measured):
    table, machine = trace(MODEL, (torch.ones(5, 3),)), made.machine()
    first = analysis_dict(table, measured=measured.ops if measured else None)
    before = json.dumps(first)
    found = verdict(table, machine, measured=measured)
    rows = predict(table, machine, found, asked=Asked(probes={"int8 W8A8": made.span(0.5)}))
    document = json.loads(
        json.dumps(complete(first, found, rows, machine, advice=advise(found, rows)), allow_nan=False)
    )
    jsonschema.validate(document, analysis_schema())
    assert json.dumps(first) == before
    assert document["verdict"]["class"] == found.class_
    assert sum(row["share"] for row in document["classes"].values()) == pytest.approx(1.0)
    assert (
        sum(row["ops"] for row in document["classes"].values()) == len(document["op_classes"]) == len(document["ops"])
    )
    assert [row["name"] for row in document["stages"]] == [row.name for row in rows]
    probed = next(row for row in document["stages"] if row["name"] == "int8 W8A8")
    assert probed["probe_speedup"]["value"] == 0.5
    assert document["device"]["bandwidth_byte_per_s"]["dram"] == 12e9
    assert document["verdict"]["advice"]
    del document["verdict"]["evidence"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, analysis_schema())


def test_the_schema_knows_every_confidence():
    assert get_args(Confidence) == CONFIDENCES
