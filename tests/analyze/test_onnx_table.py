"""The ONNX front end against the torch one, against hand-derived counts, and against files that mean harm."""

import os
import warnings

import nets_text
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static
from torch import nn

from compress.analyze.onnx_table import table_from_onnx
from compress.analyze.trace import trace
from compress.analyze.traffic import traffic
from compress.errors import InputError


def _export(model: nn.Module, x: torch.Tensor, path, **options) -> None:
    with warnings.catch_warnings():
        # The TorchScript exporter announces its retirement and traces Python branches; both are meant here.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.simplefilter("ignore", UserWarning)
        torch.onnx.export(model.eval(), (x,), path, dynamo=False, input_names=["x"], output_names=["y"], **options)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, bidirectional=True)

    def forward(self, x):
        return self.lstm(x)[0]


SAMPLES = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, groups=4, dilation=2),
            nn.ConvTranspose2d(16, 6, 2, stride=2, groups=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 10),
        ),
        torch.rand(2, 3, 20, 20),
    ),
    "attention": (lambda: nets_text.Block(32, 4, before=False), torch.rand(2, 10, 32)),
    "recurrent": (Lstm, torch.rand(5, 2, 8)),
    "linear on three dimensions": (lambda: nn.Linear(3, 8), torch.rand(5, 100, 3)),
    "text": (
        nets_text.Bert(vocab=50, width=32, depth=1, heads=4, pooler=False).build,
        torch.zeros(2, 7, dtype=torch.long),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_an_exported_model_counts_as_the_torch_one_does(name, tmp_path):
    make, x = SAMPLES[name]
    model = make()
    if name == "text":
        model = _FirstOutput(model)
    _export(model, x, tmp_path / "m.onnx")
    exported, traced = table_from_onnx(tmp_path / "m.onnx"), trace(model, (x,))
    assert not exported.unknown_ops
    assert exported.macs == traced.macs > 0
    moved = traffic(exported)
    assert 0 < moved.bytes_of("C") <= moved.bytes_of("G") <= moved.bytes_of("U")


class _FirstOutput(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)["last"]


def test_open_dimensions_are_bound_by_name_by_shape_or_to_one_with_a_note(tmp_path):
    _export(nn.Linear(3, 8), torch.rand(2, 5, 3), tmp_path / "m.onnx", dynamic_axes={"x": {0: "batch", 1: "time"}})
    assert table_from_onnx(tmp_path / "m.onnx", {"batch": 4, "time": 6}).macs == 4 * 6 * 24
    assert table_from_onnx(tmp_path / "m.onnx", {"x": (4, 6, 3)}).macs == 4 * 6 * 24
    partly = table_from_onnx(tmp_path / "m.onnx", {"time": 6})
    assert partly.macs == 6 * 24
    assert partly.notes == ("x[0] (batch) is open; counted as 1",)
    with pytest.raises(InputError, match="has 3 dimensions, the shape given 2"):
        table_from_onnx(tmp_path / "m.onnx", {"x": (4, 6)})


def _value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def _weight(name, shape, dtype=np.float32):
    return onnx.numpy_helper.from_array(np.ones(shape, dtype), name)


def _model(nodes, inputs, outputs, weights=(), contrib=True):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 23), *([helper.make_opsetid("com.microsoft", 1)] if contrib else [])]
    return helper.make_model(graph, opset_imports=opsets)


def _single(op, inputs, out, weights=(), kind=TensorProto.FLOAT, **attributes):
    """One node; inputs: (name, shape, type)."""
    names = [*(i[0] for i in inputs), *(w.name for w in weights)]
    order = attributes.pop("order", names)
    node = helper.make_node(op, order, ["y"], **attributes)
    return _model([node], [_value(*i) for i in inputs], [_value("y", out, kind)], weights)


FLOAT, U8 = TensorProto.FLOAT, TensorProto.UINT8
NODES = {
    "ConvInteger": (
        _single(
            "ConvInteger",
            [("x", (1, 2, 5, 5), U8)],
            None,
            [_weight("w", (3, 2, 3, 3), np.uint8)],
            kind=TensorProto.INT32,
        ),
        9 * 3 * 18,
    ),
    "MatMulInteger": (
        _single("MatMulInteger", [("x", (4, 6), U8)], None, [_weight("w", (6, 5), np.uint8)], kind=TensorProto.INT32),
        120,
    ),
    "Gemm": (_single("Gemm", [("x", (6, 4), FLOAT)], None, [_weight("w", (5, 6))], transA=1, transB=1), 120),
    "Einsum": (_single("Einsum", [("x", (2, 3, 4), FLOAT)], None, [_weight("w", (4, 5))], equation="bij,jk->bik"), 120),
    "GRU": (
        _single(
            "GRU",
            [("x", (5, 2, 8), FLOAT)],
            None,
            [_weight("w", (1, 48, 8)), _weight("r", (1, 48, 16))],
            hidden_size=16,
        ),
        10 * 48 * 24,
    ),
    # 2 x 4 heads x 10 x 10 x (16 + 16)
    "Attention": (
        _single(
            "Attention",
            [(n, (2, 10, 64), FLOAT) for n in "qkv"],
            (2, 10, 64),
            q_num_heads=4,
            kv_num_heads=4,
        ),
        2 * 4 * 100 * 32,
    ),
    # Two query heads share each key head.
    "Attention with grouped queries": (
        _single(
            "Attention",
            [("q", (1, 4, 5, 8), FLOAT), ("k", (1, 2, 7, 8), FLOAT), ("v", (1, 2, 7, 8), FLOAT)],
            (1, 4, 5, 8),
        ),
        4 * 5 * 7 * 16,
    ),
    "com.microsoft Attention": (
        _single(
            "Attention",
            [("x", (2, 10, 64), FLOAT)],
            None,
            [_weight("w", (64, 192)), _weight("b", (192,))],
            domain="com.microsoft",
            num_heads=4,
        ),
        2 * 10 * 64 * 192 + 2 * 100 * 128,
    ),
    "MatMulNBits": (
        _single(
            "MatMulNBits",
            [("x", (3, 64), FLOAT)],
            None,
            [_weight("w", (32, 2, 16), np.uint8), _weight("s", (64,))],
            domain="com.microsoft",
            K=64,
            N=32,
            bits=4,
            block_size=32,
        ),
        3 * 64 * 32,
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_counts_what_its_definition_says(name):
    model, macs = NODES[name]
    table = table_from_onnx(model)
    assert (table.macs, table.unknown_ops) == (macs, ())


def test_quantized_convolution_and_product_are_counted():
    scales = [_weight("s", (), np.float32), _weight("z", (), np.uint8)]
    conv = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "z", "s", "z"], ["c"])
    product = helper.make_node("QLinearMatMul", ["c", "s", "z", "m", "s", "z", "s", "z"], ["y"])
    weights = [*scales, _weight("w", (3, 2, 3, 3), np.uint8), _weight("m", (3, 4), np.uint8)]
    table = table_from_onnx(_model([conv, product], [_value("x", (1, 2, 5, 5), U8)], [_value("y", None, U8)], weights))
    assert table.macs == 9 * 3 * 18 + 3 * 3 * 3 * 4


def test_a_dequantized_weight_moves_its_integer_bytes():
    unpack = helper.make_node("DequantizeLinear", ["q", "s"], ["w"])
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = [_weight("q", (64, 32), np.int8), _weight("s", ())]
    table = table_from_onnx(_model([unpack, product], [_value("x", (1, 64))], [_value("y", (1, 32))], weights))
    assert table.macs == 64 * 32
    assert traffic(table).total["U"]["weight"] == 64 * 32


def test_views_cost_nothing_and_transposes_are_moves():
    shape = onnx.numpy_helper.from_array(np.array([6, 4]), "shape")
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Transpose", ["r"], ["y"])]
    table = table_from_onnx(_model(nodes, [_value("x", (2, 3, 4))], [_value("y", None)], [shape]))
    moved = traffic(table)
    assert [op.kind for op in table.ops] == ["view", "move"]
    assert [moved.bytes_of("U", i) for i in (0, 1)] == [0, 2 * 24 * 4]


def test_gather_reads_only_the_rows_asked_for():
    node = helper.make_node("Gather", ["w", "x"], ["y"])
    table = table_from_onnx(
        _model([node], [_value("x", (1, 5), TensorProto.INT64)], [_value("y", None)], [_weight("w", (1000, 8))])
    )
    assert traffic(table).total["U"]["weight"] == 5 * 8 * 4


def test_the_heavier_branch_of_an_if_counts_and_is_noted():
    def branch(name, width):
        nodes = [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"h{name}"]),
            helper.make_node("ReduceSum", [f"h{name}"], [name]),
        ]
        return helper.make_graph(nodes, name, [], [_value(name, None)], [_weight(f"w{name}", (4, width))])

    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("t", 5), else_branch=branch("e", 9))
    inputs = [_value("x", (2, 4)), _value("c", (), TensorProto.BOOL)]
    table = table_from_onnx(_model([node], inputs, [_value("y", None)]))
    assert table.macs == 2 * 4 * 9
    assert table.notes == ("If 'choice': heavier branch counted",)


def test_an_operator_nobody_knows_is_listed():
    nodes = [helper.make_node("Mystery", ["x"], ["h"], domain="my.lib"), helper.make_node("Relu", ["h"], ["y"])]
    model = _model(nodes, [_value("x", (2, 4))], [_value("y", (2, 4))])
    model.opset_import.append(helper.make_opsetid("my.lib", 1))
    table = table_from_onnx(model)
    assert ("my.lib::Mystery", 1) in table.unknown_ops
    assert table.coverage < 1


def test_a_broken_an_empty_and_a_missing_file_are_input_errors(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"not a model" * 9)
    (tmp_path / "none.onnx").write_bytes(b"")
    for name in ("broken.onnx", "none.onnx", "missing.onnx"):
        with pytest.raises(InputError, match=name):
            table_from_onnx(tmp_path / name)


def _with_external(path, location):
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [_value("x", (1, 4))], [_value("y", (1, 4))])
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    return path


def test_plain_external_data_beside_the_model_is_accepted(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(64))
    assert table_from_onnx(_with_external(tmp_path / "m.onnx", "w.bin")).macs == 16


@pytest.mark.parametrize(
    ("location", "fact"),
    [
        ("../w.bin", "not a relative path"),
        ("/etc/hostname", "not a relative path"),
        ("", "not a relative path"),
        ("missing.bin", "does not exist"),
        ("link.bin", "is a link"),
        ("folder", "is a link or not a regular file"),
        ("linked/w.bin", "is a link"),
        ("second.bin", "more than one name"),
    ],
)
def test_external_data_that_may_not_be_opened_is_refused(tmp_path, location, fact):
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    for place in (tmp_path, home / "folder"):
        (place / "w.bin").write_bytes(bytes(64))
    (home / "link.bin").symlink_to(tmp_path / "w.bin")
    (home / "linked").symlink_to(home / "folder")
    os.link(tmp_path / "w.bin", home / "second.bin")
    with pytest.raises(InputError, match=fact):
        table_from_onnx(_with_external(home / "m.onnx", location))


class _Samples(CalibrationDataReader):
    def __init__(self, x):
        self.rows = iter([{"x": x.numpy()}])

    def get_next(self):
        return next(self.rows, None)


def _quantized(name, path):
    make, x = SAMPLES[name]
    _export(make(), x, path / "float.onnx", dynamic_axes={"x": {0: "batch"}})
    for form in QuantFormat:
        quantize_static(path / "float.onnx", path / f"{form}.onnx", _Samples(x), quant_format=form)
        yield path / f"{form}.onnx"
    quantize_dynamic(path / "float.onnx", path / "dynamic.onnx")
    yield path / "dynamic.onnx"


def _optimised(path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    options.log_severity_level = 3
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return path.with_suffix(".optimised.onnx")


@pytest.mark.parametrize("name", ["convolutions", "attention"])
def test_a_quantized_and_optimised_graph_counts_as_the_float_one_does(name, tmp_path):
    # Optimised graphs are made of onnxruntime's own operators, with channels last where it likes that better.
    files = [file for path in _quantized(name, tmp_path) for file in (path, _optimised(path))]
    plain = table_from_onnx(tmp_path / "float.onnx", {"batch": 2})
    for file in files:
        table = table_from_onnx(file, {"batch": 2})
        assert (table.macs, table.unknown_ops, table.coverage) == (plain.macs, (), 1.0)
        moved = traffic(table)
        assert moved.bytes_of("C") <= moved.bytes_of("G") <= moved.bytes_of("U")
        assert moved.total["C"]["kv"] == 0
        assert table.weight_bytes < plain.weight_bytes


def test_a_cache_that_grows_in_a_graph_is_kv():
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["now"], axis=2),
        helper.make_node("MatMul", ["q", "now"], ["y"]),
    ]
    inputs = [_value("past", (1, 2, 8, 4)), _value("new", (1, 2, 1, 4)), _value("q", (1, 2, 1, 9))]
    table = table_from_onnx(_model(nodes, inputs, [_value("y", None), _value("now", None)]))
    assert {t.name: t.role for t in table.inputs} == {"past": "kv", "new": "kv", "q": "io"}
    # All of the old cache is read, the new part is read and written once.
    assert traffic(table).total["C"]["kv"] == 2 * 4 * 4 * (8 + 1 + 1)
