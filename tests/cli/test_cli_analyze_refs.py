"""References of every form: what each leads to, and one line with the remedy where it leads nowhere."""

import contextlib
import importlib.util
import json
import resource
import subprocess
import sys

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compress.__main__ import main
from compress.analyze.schema import analysis_schema

BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2,
}  # fmt: skip
VIT = {"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
       "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_channels": 3}  # fmt: skip
DISTILBERT = {"architectures": ["DistilBertModel"], "model_type": "distilbert", "dim": 768, "n_layers": 6,
              "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522}  # fmt: skip
WHISPER_TINY = {
    "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "d_model": 384,
    "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
    "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "vocab_size": 51865, "num_mel_bins": 80,
    "max_source_positions": 1500,
}  # fmt: skip
# Stand-ins with the two functions of the real packages that are called.
TORCHVISION = """
from torch import nn
def list_models():
    return ["small_net"]
def get_model(name, weights):
    assert weights is None
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=8), nn.Flatten(), nn.Linear(4 * 28 * 28, 10))
"""
TIMM = """
from torch import nn
def is_model(name):
    return name == "small_net"
def list_models():
    return ["small_net"]
def create_model(name, pretrained):
    assert not pretrained
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=8), nn.Flatten(), nn.Linear(4 * 4 * 4, 10))
    net.default_cfg = {"input_size": (3, 32, 32)}
    return net
"""
RECIPE = """\
schema: 1
name: digits
model: {ref: "compress.zoo:digits_cnn"}
data: {ref: "compress.zoo:digits", calibration_samples: 128}
target: {batch_sizes: [4, 1]}
gates:
  - {metric: speedup, min: 500}
stages:
  - ptq
"""


def analysis(capsys, *arguments: str) -> dict:
    assert main(["analyze", *arguments, "--device", "h100-sxm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, analysis_schema())
    return document


def refused(capsys, *arguments: str) -> str:
    """The one line on stderr."""
    assert main(["analyze", *arguments]) in (2, 3)
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def without(package, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == package else found(name, *rest)
    )


def forgotten(name):
    """Its modules, no longer imported."""
    return {one: sys.modules.pop(one) for one in list(sys.modules) if one.partition(".")[0] == name}


@contextlib.contextmanager
def stand_in(name, source, folder):
    """A package of that name for as long as the block lasts; nothing of it stays imported for other tests."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(source if name == "timm" else "")
    (package / "models.py").write_text(source)
    real = forgotten(name)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        forgotten(name)
        sys.modules.update(real)
        importlib.invalidate_caches()


def written(folder, sizes):
    (folder / "config.json").write_text(json.dumps(sizes))
    return str(folder)


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_a_model_of_a_package_that_is_missing_names_the_extra(package, monkeypatch, capsys):
    without(package, monkeypatch)
    line = refused(capsys, f"{package}:resnet18", "--device", "t4")
    assert f"{package} is not installed" in line
    assert "pip install 'compress-ladder[vision]'" in line


@pytest.mark.parametrize(
    ("package", "source", "size"), [("torchvision", TORCHVISION, 224), ("timm", TIMM, 32)], ids=["torchvision", "timm"]
)
def test_a_model_of_a_package_gets_the_image_it_is_made_for(package, source, size, tmp_path, capsys):
    with stand_in(package, source, tmp_path):
        document = analysis(capsys, f"{package}:small_net", "--batch", "2")
        misspelt = refused(capsys, f"{package}:smal_net", "--device", "t4")
    assert [one["shape"] for one in document["model"]["inputs"]] == [[2, 3, size, size]]
    assert document["error"] is None
    assert "Did you mean 'small_net'?" in misspelt


def test_an_encoder_without_transformers_is_refused_and_not_read_as_a_decoder(tmp_path, monkeypatch, capsys):
    without("transformers", monkeypatch)
    line = refused(capsys, written(tmp_path, BERT), "--device", "t4")
    assert "bert, not a decoder-only model" in line
    assert "pip install 'compress-ladder[hf]'" in line


def test_a_config_that_does_not_say_what_it_is_of_is_refused(tmp_path, capsys):
    sizes = {key: value for key, value in BERT.items() if key not in ("model_type", "architectures")}
    assert "does not say which model it is of" in refused(capsys, written(tmp_path, sizes), "--device", "t4")


@pytest.mark.parametrize(
    ("sizes", "inputs", "params", "macs"),
    [
        (BERT, {"input_ids": [1, 128], "attention_mask": [1, 128]}, 109_482_240, 11.174216e9),
        (DISTILBERT, {"input_ids": [1, 128], "attention_mask": [1, 128]}, 66_362_880, 5.586813e9),
        (VIT, {"pixel_values": [1, 3, 224, 224]}, None, 17.5628e9),
        (WHISPER_TINY, {"input_features": [1, 80, 3000], "decoder_input_ids": [1, 1]}, 37_760_640, None),
    ],
    ids=["bert", "distilbert", "vit", "whisper"],
)
def test_an_encoder_is_built_from_its_config_without_weights(sizes, inputs, params, macs, tmp_path, capsys):
    pytest.importorskip("transformers")
    document = analysis(capsys, f"hf:{written(tmp_path, sizes)}", "--strict")
    assert {one["name"]: one["shape"] for one in document["model"]["inputs"]} == inputs
    assert params is None or document["model"]["params"] == params
    assert macs is None or document["model"]["macs"] == pytest.approx(macs, rel=1e-3)
    assert "llm" not in document


@pytest.mark.parametrize("name", ["nobody/has-this-model", "not a name at all", "nope"])
def test_a_name_that_is_not_on_this_disk_is_not_fetched(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    line = refused(capsys, f"hf:{name}", "--device", "t4")
    assert "no such model in the local cache" in line
    assert "Nothing is fetched" in line


def test_a_folder_without_a_config_is_said(tmp_path, capsys):
    assert "holds no config.json" in refused(capsys, str(tmp_path), "--device", "t4")


@pytest.mark.parametrize(("text", "said"), [("{", "cannot be read as JSON"), ("[1]", "holds no sizes")])
def test_a_config_that_is_none_is_one_line(text, said, tmp_path, capsys):
    (tmp_path / "config.json").write_text(text)
    assert said in refused(capsys, str(tmp_path / "config.json"), "--device", "t4")


def test_a_recipe_gives_model_samples_and_target(tmp_path, capsys):
    path = tmp_path / "digits.yaml"
    path.write_text(RECIPE)
    document = analysis(capsys, str(path))
    assert [one["shape"] for one in document["model"]["inputs"]] == [[4, 1, 8, 8]]
    assert "500x is wanted" in next(row["why"] for row in document["stages"] if row["name"] == "int8 W8A8")
    assert [one["shape"] for one in analysis(capsys, str(path), "--batch", "7")["model"]["inputs"]] == [[7, 1, 8, 8]]
    assert "have a length of their own" in refused(capsys, str(path), "--seq", "3", "--device", "t4")


def onnx_file(path, batch="batch"):
    """Token ids through a table of 11 rows and a matrix, and a mask."""
    values = {"table": np.ones((11, 8), np.float32), "w": np.ones((8, 4), np.float32)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["wide"]),
        helper.make_node("Mul", ["wide", "scale"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [batch, "tokens"]),
            helper.make_tensor_value_info("scale", onnx.TensorProto.FLOAT, [batch, 1, 1]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, "tokens", 4])],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        (["--batch", "3", "--seq", "5"], [3, 5]),
        (["--input-shape", "3,5", "--input-shape", "3,1,1"], [3, 5]),
        (["--input-shape", "scale=3,1,1", "--input-shape", "3,5:int64"], [3, 5]),
        ([], [1, 1]),
    ],
)
def test_open_sizes_of_a_file_are_bound_by_order_name_batch_or_sequence(arguments, shape, tmp_path, capsys):
    document = analysis(capsys, f"onnx:{onnx_file(tmp_path / 'm.onnx')}", *arguments)
    assert document["model"]["macs"] == shape[0] * shape[1] * 8 * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "3"], "input 'ids' is fixed at 2"),
        (["--input-shape", "idz=2,3"], "Did you mean 'ids'?"),
        (["--input-shape", "ids=2,3:float32"], "input 'ids' is int64, not float32"),
        (["--input-shape", "ids=2"], "input 'ids' has 2 sizes, 1 were given"),
        (["--device", "h1000"], "Known: t4, a10"),
    ],
)
def test_sizes_that_a_file_does_not_take_are_one_line(arguments, said, tmp_path, capsys):
    path = onnx_file(tmp_path / "m.onnx", batch=2)
    assert said in refused(capsys, path, *(arguments if "--device" in arguments else [*arguments, "--device", "t4"]))


def test_help_answers_at_once_with_examples_before_options():
    code = (
        "import sys\nfrom compress.__main__ import main\nmain(['analyze', '--help'])\nassert 'torch' not in sys.modules"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor: a busy machine makes nobody's help slow.
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.6
    assert ran.stdout.index("compress analyze mymodel:build") < ran.stdout.index("A module is counted")
    assert ran.stdout.index("compress analyze llama/config.json") < ran.stdout.index("Options:")
