"""`compress analyze`: counts, a verdict and ceilings without a recipe; partial answers instead of tracebacks."""

import json

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compress.__main__ import main
from compress.analyze.schema import analysis_schema

MODULE = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        y = self.a(x)
        if bool((y.sum() > 1e9).item()):
            raise ValueError("never")
        return {"out": y, "nothing": None}

class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        raise ValueError(f"no: {self.a(x).shape}")

def raises():
    raise RuntimeError("on purpose")
"""
LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    name = f"analyzed_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def analysis(capsys, *arguments: str) -> dict:
    assert main(["analyze", *arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, analysis_schema())
    return document


def test_a_torch_function_is_counted_and_judged_on_a_device_that_is_not_here(module, capsys):
    document = analysis(capsys, f"{module}:net", "--input-shape", "1,3,8,8", "--device", "h100-sxm")
    assert document["model"]["macs"] == 8 * 3 * 9 * 36 + 8 * 36 * 5
    assert document["verdict"]["confidence"] == "datasheet, not measured"
    assert document["device"]["name"] == "h100-sxm"
    assert {"int8 W8A8", "prune 50%"} <= {row["name"] for row in document["stages"]}


def test_an_onnx_file_is_counted_like_its_formula(tmp_path, capsys):
    weight = numpy_helper.from_array(np.ones((16, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
        [weight],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    assert analysis(capsys, str(path), "--device", "t4")["model"]["macs"] == 64
    shaped = analysis(capsys, str(path), "--device", "t4", "--input-shape", "x=3,16")
    assert shaped["model"]["macs"] == 3 * 64


def test_a_model_that_branches_on_data_and_returns_a_dict_still_has_counts(module, capsys):
    document = analysis(capsys, f"{module}:Branches", "--input-shape", "2,4", "--device", "t4")
    assert document["model"]["params"] == 20
    assert document["model"]["macs"] == 32


def test_a_model_that_does_not_run_gives_a_partial_report_and_no_traceback(module, capsys):
    assert main(["analyze", f"{module}:Breaks", "--input-shape", "2,4", "--device", "t4"]) == 0
    shown = capsys.readouterr()
    assert "no: " in shown.out
    assert "Traceback" not in shown.out + shown.err


def test_a_language_model_is_judged_from_its_config_alone(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    document = analysis(capsys, str(path), "--device", "h100-sxm")
    rows = {(row["batch"], row["context"]): row for row in document["llm"]["rows"]}
    # 6.74e9 weights of 2 bytes, read once for 2 FLOP each; keys and values of 2048 tokens are 1.07 GB.
    assert rows[1, 2048]["intensity_flop_per_byte"] == pytest.approx(1.0, abs=0.01)
    assert rows[1, 2048]["kv_share"] == pytest.approx(0.075, abs=0.005)
    assert rows[64, 2048]["kv_int8_speedup"] == pytest.approx(1.72, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{m}:net"], "--input-shape 1,3,224,224"),
        (["{m}:net", "--input-shape", "1,x"], "'1,x' is no shape"),
        (["{m}:net", "--input-shape", "1,3,8,8", "--device", "h1000"], "Known: t4, a10"),
        (["{m}:nett", "--input-shape", "1,3,8,8"], "Did you mean 'net'?"),
        (["{m}:raises", "--input-shape", "1,3,8,8"], "raised RuntimeError: on purpose"),
        (["nope.onnx"], "no such file"),
        (["config.json", "--device", "t4"], "no such file or folder"),
        (["{m}:net", "--input-shape", "1,3,8,8", "--device", "t4", "--roofline", "x.gif"], "neither .svg nor .png"),
    ],
)
def test_what_cannot_be_analyzed_is_one_line(module, arguments, said, capsys):
    assert main(["analyze", *(argument.format(m=module) for argument in arguments)]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert said in errors[-1]
    assert not any("Traceback" in line for line in errors)


@pytest.mark.parametrize("name", ["r.svg", "r.png"])
def test_the_roofline_is_drawn_on_request(module, tmp_path, name, capsys):
    arguments = ["analyze", f"{module}:net", "--input-shape", "1,3,8,8", "--device", "t4", "--roofline", name]
    assert main(arguments) == 0
    assert (tmp_path / name).stat().st_size > 1000


def test_a_model_is_timed_here_as_the_file_that_would_serve(module, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COMPRESS_CACHE", str(tmp_path / "cache"))
    document = analysis(capsys, f"{module}:net", "--input-shape", "1,3,8,8")
    assert document["verdict"]["measured_ms"]["n"] >= 7
    assert any(op["time_ms"] for op in document["ops"])
    assert "timed on random inputs" in document["notes"]
