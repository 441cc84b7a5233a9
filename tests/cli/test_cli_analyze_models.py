"""Models that misbehave still get a report: counts of what was reached, a line on what was not, no traceback."""

import json

import jsonschema
import pytest

from compress.__main__ import main
from compress.analyze.schema import analysis_schema

MODULE = """
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)


class Branches(Base):
    def forward(self, x):
        return self.a(x) if bool((self.a(x).sum() > 1e9).item()) else self.a(self.a(x))


class GivesDict(Base):
    def forward(self, x):
        return {"y": self.a(x), "aux": None}


class GivesTuple(Base):
    def forward(self, x):
        return self.a(x), x.sum(1)


class GivesNothing(Base):
    def forward(self, x):
        self.a(x)


class GivesNested(Base):
    def forward(self, x):
        return [{"deep": (self.a(x), [x])}, None]


class NeedsMask(Base):
    def forward(self, x, *, mask):
        return self.a(x) * mask


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.a = nn.Embedding(7, 4), nn.Linear(6, 4)

    def forward(self, ids, features, scale=1.0):
        return self.table(ids).mean(1) + self.a(features) * scale


@torch.library.custom_op("compress_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class HasCustomOp(Base):
    def forward(self, x):
        return self.a(twice(self.a(x)))


class Raises(Base):
    def forward(self, x):
        raise ValueError(f"no: {self.a(x).shape}")


class TakesAny(Base):
    def forward(self, *many):
        return self.a(many[0])


def compiled():
    return torch.compile(TwoInputs())


def not_a_module():
    return 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    name = f"awkward_{tmp_path.name}"
    # One library name per test: a custom op can be defined only once in a process.
    (tmp_path / f"{name}.py").write_text(MODULE.replace("compress_tests", name))
    monkeypatch.chdir(tmp_path)
    return name


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Ceilings of this machine, measured once for the tests here."""
    return tmp_path_factory.mktemp("cache")


def analysis(capsys, *arguments: str) -> dict:
    assert main(["analyze", *arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    document = json.loads(shown.out)
    jsonschema.validate(document, analysis_schema())
    return document


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("Branches", 3 * 32), ("GivesDict", 32), ("GivesTuple", 32), ("GivesNothing", 32), ("GivesNested", 32),
        ("HasCustomOp", 64),
    ],
)  # fmt: skip
def test_whatever_forward_does_or_returns_its_work_is_counted(module, name, macs, capsys):
    document = analysis(capsys, f"{module}:{name}", "--input-shape", "2,4", "--device", "t4")
    assert document["model"]["macs"] == macs
    assert document["model"]["params"] == 20
    assert document["error"] is None


def test_a_custom_op_is_listed_and_fails_only_a_strict_run(module, capsys):
    arguments = ["analyze", f"{module}:HasCustomOp", "--input-shape", "2,4", "--device", "t4"]
    assert main(arguments) == 0
    assert f"not counted: {module}::twice x1" in capsys.readouterr().out
    assert main([*arguments, "--strict"]) == 2
    assert f"not counted: {module}::twice x1" in capsys.readouterr().err


def test_a_model_that_raises_has_a_partial_report_that_fails_only_a_strict_run(module, capsys):
    arguments = ["analyze", f"{module}:Raises", "--input-shape", "2,4", "--device", "t4"]
    document = analysis(capsys, *arguments[1:])
    assert document["error"] == "ValueError: no: torch.Size([2, 4])"
    assert document["model"]["macs"] == 32
    assert main(arguments) == 0
    assert "partial: ValueError: no: torch.Size([2, 4])" in capsys.readouterr().out
    assert main([*arguments, "--strict"]) == 2
    assert "ValueError: no" in capsys.readouterr().err


def test_an_argument_nobody_gave_is_named_in_a_partial_report(module, capsys):
    document = analysis(capsys, f"{module}:NeedsMask", "--input-shape", "2,4", "--device", "t4")
    assert "'mask'" in document["error"]
    assert document["coverage"] == 0


def test_keyword_arguments_are_given_by_name_beside_unnamed_ones(module, capsys):
    shapes = ["--input-shape", "2,4", "--input-shape", "mask=2,1"]
    document = analysis(capsys, f"{module}:NeedsMask", *shapes, "--device", "t4")
    assert document["error"] is None
    assert {one["name"]: one["shape"] for one in document["model"]["inputs"]} == {"x": [2, 4], "mask": [2, 1]}


def test_unnamed_shapes_go_to_the_parameters_in_order(module, capsys):
    shapes = ["--input-shape", "3,5:int64", "--input-shape", "3,6"]
    document = analysis(capsys, f"{module}:TwoInputs", *shapes, "--device", "t4")
    assert {one["name"]: one["shape"] for one in document["model"]["inputs"]} == {"ids": [3, 5], "features": [3, 6]}
    assert document["model"]["macs"] == 3 * 6 * 4
    named = ["--input-shape", "3,6", "--input-shape", "ids=3,5:int64"]
    assert analysis(capsys, f"{module}:TwoInputs", *named, "--device", "t4")["model"] == document["model"]


# Importing torch's compiler defines old script methods of its own.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
def test_the_parameters_are_those_behind_torch_compile(module, capsys):
    shapes = ["--input-shape", "3,5:int64", "--input-shape", "3,6"]
    document = analysis(capsys, f"{module}:compiled", *shapes, "--device", "t4")
    assert [one["name"] for one in document["model"]["inputs"]] == ["ids", "features"]
    assert document["model"]["macs"] == 3 * 6 * 4


def test_a_model_that_takes_any_arguments_gets_the_one_it_is_given(module, capsys):
    assert analysis(capsys, f"{module}:TakesAny", "--input-shape", "2,4", "--device", "t4")["model"]["macs"] == 32


def test_batch_and_sequence_replace_the_sizes_of_the_shapes(module, capsys):
    shapes = ["--input-shape", "1,5:int64", "--input-shape", "1,6", "--batch", "4", "--seq", "9"]
    document = analysis(capsys, f"{module}:TwoInputs", *shapes, "--device", "t4")
    assert {one["name"]: one["shape"] for one in document["model"]["inputs"]} == {"ids": [4, 9], "features": [4, 6]}
    symbolic = document["symbolic"]
    assert (symbolic["macs"], symbolic["symbols"]) == ("24*b", ["b", "s"])
    assert [row["macs"] for row in symbolic["sweep"]] == [24 * row["b"] for row in symbolic["sweep"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["TwoInputs", "--input-shape", "1,5", "--input-shape", "1,6", "--input-shape", "1", "--input-shape", "2"],
         "4 shapes for 3 inputs (ids, features, scale)"),
        (["TakesAny", "--input-shape", "1,4", "--input-shape", "1,4"], "those of *args need names"),
        (["TwoInputs", "--input-shape", "idz=1,5"], "Did you mean 'ids'?"),
        (["TwoInputs", "--input-shape", "1,5:int46"], "'int46' is no type"),
        (["TwoInputs", "--input-shape", "x=1,5", "--input-shape", "x=1,6"], "two shapes for 'x'"),
        (["Raises", "--input-shape", "1,4", "--seq", "5"], "no input is an integer array"),
        (["not_a_module", "--input-shape", "1,4"], "returned int, not a torch.nn.Module"),
        (["Raises", "--input-shape", "1,4", "--probe"], "times kernels on this machine"),
    ],
)  # fmt: skip
def test_inputs_that_fit_nothing_are_one_line(module, arguments, said, capsys):
    name, *rest = arguments
    assert main(["analyze", f"{module}:{name}", *rest, "--device", "t4"]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert said in errors[-1]
    assert not any("Traceback" in line for line in errors)


def test_a_model_that_does_not_export_is_timed_in_eager_torch(module, cache, monkeypatch, capsys):
    monkeypatch.setenv("COMPRESS_CACHE", str(cache))
    document = analysis(capsys, f"{module}:HasCustomOp", "--input-shape", "2,4")
    assert document["verdict"]["runtime"] == "torch"
    assert document["verdict"]["measured_ms"]["n"] >= 7
    assert any("not timed as an ONNX file" in note for note in document["notes"])
    assert document["unknown_ops"] == [{"op": f"{module}::twice", "calls": 1}]
    assert document["coverage"] < 1


def test_a_timed_module_reports_its_own_operators_that_are_unknown(module, cache, monkeypatch, capsys):
    monkeypatch.setenv("COMPRESS_CACHE", str(cache))
    document = analysis(capsys, f"{module}:GivesTuple", "--input-shape", "2,4")
    assert document["verdict"]["runtime"] == "onnxruntime"
    assert (document["unknown_ops"], document["coverage"], document["error"]) == ([], 1.0, None)
    assert any("timed on random inputs" in note for note in document["notes"])
