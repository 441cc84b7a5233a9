"""The exported file: whole, quiet about its origin, in eval mode, free in the batch axis, equal to the module."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from compress.data import Split
from compress.errors import InputError
from compress.export import onnx as exporting
from compress.export.onnx import export_onnx, fold_batch_norm, name_outputs
from compress.export.parity import check_parity, run_torch

RNG = np.random.default_rng(0)


def feeds(*shape: int, name: str = "input") -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal(shape).astype(np.float32)}


def split_of(inputs: dict[str, np.ndarray]) -> Split:
    count = len(next(iter(inputs.values())))
    return Split("select", (inputs, np.zeros(count)), np.arange(count))


def export(model: nn.Module, inputs: dict[str, np.ndarray], path: Path) -> onnx.ModelProto:
    export_onnx(model, inputs, path, list(run_torch(model, inputs)))
    return onnx.load(path)


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 4),
    )  # fmt: skip
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -1, 1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return net


class BakesTheBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.zeros(int(x.shape[0]), 4) + len(x) * 0.1


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, b: torch.Tensor, a: torch.Tensor) -> dict[str, torch.Tensor | None]:
        return {"second": self.left(b), "first": self.right(a), "nothing": None}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    model = conv_net().train()
    export(model, feeds(4, 1, 8, 8), path)
    return model, path


def test_the_file_equals_the_module_at_batch_sizes_never_exported(exported):
    model, path = exported
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in (1, 2, 7):
        inputs = feeds(batch, 1, 8, 8)
        with torch.no_grad():
            expected = model.eval()(torch.from_numpy(inputs["input"])).numpy()
        np.testing.assert_allclose(session.run(None, inputs)[0], expected, atol=1e-5)


def test_a_training_module_is_exported_in_eval_mode_and_given_back_in_training(tmp_path):
    model = conv_net().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export(model, feeds(4, 1, 8, 8), tmp_path / "m.onnx")
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    inputs = feeds(2, 1, 8, 8)
    np.testing.assert_array_equal(session.run(None, inputs)[0], session.run(None, inputs)[0])


def test_no_batch_norm_is_left_and_nodes_are_named_after_modules(exported):
    graph = onnx.load(exported[1]).graph
    assert not [node for node in graph.node if node.op_type == "BatchNormalization"]
    names = [node.name for node in graph.node]
    assert len(set(names)) == len(names)
    assert any(name.endswith("/Conv") for name in names)


def test_the_other_exporter_folds_batch_norm_as_well(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(exporting, "_export_dynamo", refuse)
    model, inputs = conv_net(), feeds(4, 1, 8, 8)
    found = export_onnx(model, inputs, tmp_path / "m.onnx", ["output"])
    assert found.exporter == "torchscript"
    assert "dynamo: RuntimeError: no" in found.note
    assert not [node for node in onnx.load(tmp_path / "m.onnx").graph.node if node.op_type == "BatchNormalization"]
    assert check_parity(model, tmp_path / "m.onnx", split_of(inputs), threads=1)["passed"]


def test_folding_changes_outputs_by_rounding_only(tmp_path):
    node = onnx.helper.make_node
    rng = np.random.default_rng(1)
    values = {
        "w": rng.standard_normal((3, 2, 3, 3)), "g": rng.uniform(0.5, 2, 3), "b": rng.standard_normal(3),
        "m": rng.standard_normal(3), "v": rng.uniform(0.5, 2, 3),
    }  # fmt: skip
    graph = onnx.helper.make_graph(
        [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 2, 6, 6])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3, 4, 4])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )  # fmt: skip
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    folded = fold_batch_norm(proto)
    assert [item.op_type for item in folded.graph.node] == ["Conv", "Relu"]
    x = {"x": rng.standard_normal((2, 2, 6, 6)).astype(np.float32)}
    outputs = [
        onnxruntime.InferenceSession(item.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, x)[0]
        for item in (proto, folded)
    ]
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-5)


def test_the_file_says_nothing_about_the_machine_that_made_it(exported):
    content = exported[1].read_bytes()
    for trace in (b"site-packages", b"/home", b"File \"", str(Path.cwd()).encode(), b"stack_trace"):
        assert trace not in content


def test_exporting_twice_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        inputs = {"input": np.ones((4, 1, 8, 8), np.float32)}
        export_onnx(conv_net(), inputs, tmp_path / f"{name}.onnx", ["output"])
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_the_file_can_be_moved_and_renamed_alone(exported, tmp_path):
    shutil.copy(exported[1], tmp_path / "renamed.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "renamed.onnx"), providers=["CPUExecutionProvider"])
    assert [path.name for path in exported[1].parent.iterdir()] == ["model.onnx"]


def test_named_inputs_and_outputs_keep_their_names(tmp_path):
    model, inputs = TwoInputs(), feeds(4, 5, name="a") | feeds(4, 4, name="b")
    proto = export(model, inputs, tmp_path / "m.onnx")
    assert {item.name for item in proto.graph.input} == {"a", "b"}
    assert [item.name for item in proto.graph.output] == ["second", "first"]
    assert check_parity(model, tmp_path / "m.onnx", split_of(inputs), threads=1)["passed"]


def test_a_batch_size_baked_into_forward_is_refused_by_parity(tmp_path):
    model, inputs = BakesTheBatch().eval(), feeds(4, 4)
    with pytest.raises(InputError, match=r"output|batch"):
        export(model, inputs, tmp_path / "m.onnx")
        check_parity(model, tmp_path / "m.onnx", split_of(inputs), threads=1)


def test_a_module_that_no_exporter_takes_ends_in_one_line(tmp_path):
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError(f"cannot\nbe traced {x.shape}")

    with pytest.raises(InputError) as caught:
        export_onnx(Branches(), feeds(4, 4), tmp_path / "m.onnx", ["output"])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize("returned", [None, {}, {"loss": None}, (), "text", 3])
def test_a_forward_without_a_tensor_is_refused(returned):
    with pytest.raises(InputError, match="without a tensor"):
        name_outputs(returned)


def test_a_batch_that_forward_refuses_is_named_with_its_shape():
    with pytest.raises(InputError, match=r"float32\[4, 3, 8, 8\]"):
        run_torch(conv_net(), feeds(4, 3, 8, 8))
