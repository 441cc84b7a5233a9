"""Files for GPU targets, looked at on the CPU: standard operators, symmetric ranges, every layer accounted for."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from compress.data import Split
from compress.device.runtime import open_session, run_session
from compress.errors import InputError
from compress.export.half import write_half
from compress.export.onnx import export_onnx
from compress.measure.stats import sqnr_db
from compress.quantize.fold_norms import fold_norms
from compress.quantize.gpu_schemes import GPU_SCHEMES, asked_for, why_not
from compress.quantize.graph import Graph
from compress.quantize.modelopt import library, quantize_module, quantizers, round_module
from compress.quantize.standard import check_symmetric, coverage

BY_NAME = {scheme.name: scheme for scheme in GPU_SCHEMES}
STANDARD_ONLY = {"", "ai.onnx"}


class Mixed(nn.Module):
    """Convolutions of several kinds with BatchNorm, a product without weights, a layer that no sample reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(8, 6, 2, stride=2, bias=False)
        self.up_norm = nn.BatchNorm2d(6)
        self.mix = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.never = nn.Linear(6, 6)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.up_norm(self.up(self.grouped(self.stem(x)).relu())).relu()
        tokens = self.mix(self.norm(x.flatten(2).transpose(1, 2)))
        looked = torch.softmax(tokens @ tokens.transpose(1, 2), dim=-1) @ tokens
        return self.head(looked.mean(dim=1))


@cache
def mixed() -> Mixed:
    """Statistics and scales of its norms are those of no fresh net, so that folding them matters."""
    torch.manual_seed(0)
    net = Mixed()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return net.eval()


def split(samples: int = 24) -> Split:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((samples, 3, 6, 6)).astype(np.float32)
    return Split("calibration", ({"input": images}, np.zeros(samples, np.int64)), np.arange(samples, dtype=np.int64))


@cache
def quantized(name: str):
    return quantize_module(mixed(), BY_NAME[name], split(), ["output"])


def run_as_written(proto: onnx.ModelProto, folder: Path, feeds) -> np.ndarray:
    onnx.save(proto, str(folder / "m.onnx"))
    return run_session(open_session(folder / "m.onnx", optimise=False), feeds, "m")["output"]


def of_type(proto: onnx.ModelProto, op: str) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.op_type == op]


def test_the_configurations_are_named_as_the_library_names_them():
    with library():
        import modelopt.torch.quantization as mtq

    assert [name for name in (scheme.config for scheme in GPU_SCHEMES) if not hasattr(mtq, name)] == []


@pytest.mark.parametrize("name", ["int8-default", "int8-smoothquant", "fp8-default"])
def test_a_file_holds_standard_operators_only_and_the_checker_takes_it(name, tmp_path):
    proto = quantized(name).proto
    assert {node.domain for node in proto.graph.node} <= STANDARD_ONLY
    onnx.save(proto, str(tmp_path / "m.onnx"))
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert [item.version for item in proto.opset_import] == [BY_NAME[name].opset]


@pytest.mark.parametrize("name", ["int8-default", "int8-smoothquant", "fp8-default"])
def test_the_file_computes_what_the_calibrated_module_computes(name, tmp_path):
    feeds, _ = split().read(np.arange(7))  # a batch that was not exported
    rounded = round_module(mixed(), BY_NAME[name], split(), (), lambda *_: None).module
    with torch.no_grad():
        expected = rounded(torch.from_numpy(feeds["input"])).numpy()
    found = run_as_written(quantized(name).proto, tmp_path, feeds)
    # Sums in another order move single values across a rounding boundary, not the whole.
    assert np.median(np.abs(found - expected)) <= 1e-4 * np.abs(expected).max()


def test_int8_stays_close_to_the_float_module(tmp_path):
    feeds, _ = split().read(np.arange(24))
    with torch.no_grad():
        expected = mixed()(torch.from_numpy(feeds["input"])).numpy()
    noise = sqnr_db(expected, run_as_written(quantized("int8-default").proto, tmp_path, feeds))
    assert noise is not None
    assert noise > 20  # 8 bits give about 6 dB each; half of that is left to depth


@pytest.mark.parametrize("name", ["int8-default", "int8-smoothquant"])
def test_every_zero_point_is_zero_and_weights_have_a_scale_per_channel(name):
    proto = quantized(name).proto
    graph = Graph(proto)
    for node in (*of_type(proto, "QuantizeLinear"), *of_type(proto, "DequantizeLinear")):
        zero = graph.constant(node.input[2])
        assert zero is not None
        assert zero.dtype == np.int8
        assert not zero.any()
    weights = [node for node in of_type(proto, "DequantizeLinear") if node.input[0] in graph.initializers]
    assert len(weights) == 5
    for node in weights:
        codes, scale = graph.constant(node.input[0]), graph.constant(node.input[1])
        axis = next(one.i for one in node.attribute if one.name == "axis")
        assert codes.dtype == np.int8
        assert scale.shape == (codes.shape[axis],)
        # Each channel uses its whole grid.
        others = tuple(i for i in range(codes.ndim) if i != axis)
        assert np.all(np.abs(codes.astype(np.int32)).max(axis=others) >= 127 - (name == "int8-smoothquant"))
    assert all(graph.constant(node.input[1]).size == 1 for node in of_type(proto, "QuantizeLinear"))


def test_weights_are_stored_as_codes_and_no_float_copy_is_left():
    proto = quantized("int8-default").proto
    matrices = [item for item in proto.graph.initializer if len(item.dims) >= 2]
    assert {item.data_type for item in matrices} == {TensorProto.INT8}
    graph = Graph(proto)
    turned = [graph.producers[node.input[0]].op_type for node in of_type(proto, "Transpose")]
    assert "DequantizeLinear" not in turned


def test_eight_bit_floats_are_stored_as_such():
    proto = quantized("fp8-default").proto
    kinds = {item.data_type for item in proto.graph.initializer if len(item.dims) >= 2}
    assert kinds == {TensorProto.FLOAT8E4M3FN}


def test_no_batch_norm_is_left_between_a_rounded_weight_and_what_follows():
    assert of_type(quantized("int8-default").proto, "BatchNormalization") == []


def test_coverage_tells_what_got_quantizers_and_what_did_not():
    rounded, left = coverage(quantized("int8-default").proto)
    assert rounded == ["stem.0/Conv", "grouped/Conv", "up/ConvTranspose", "mix/MatMul", "head/Gemm"]
    assert len(left) == 2
    assert all(name.startswith("MatMul") for name in left)


def test_quantizers_that_no_product_reads_are_switched_off_and_counted():
    remarks = quantized("int8-default").remarks
    assert "1 quantizers in front of layers without a product switched off" in remarks
    proto = quantized("int8-default").proto
    norm = of_type(proto, "LayerNormalization")[0]
    assert Graph(proto).producers[norm.input[0]].op_type != "DequantizeLinear"


def test_a_layer_that_calibration_never_reached_is_left_in_float_and_told():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.usual, self.rare = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.usual(x) if x.shape[-1] == 4 else self.rare(x)

    rows = np.ones((8, 4), np.float32)
    data = Split("calibration", ({"input": rows}, np.zeros(8, np.int64)), np.arange(8, dtype=np.int64))
    rounded = round_module(Branching(), BY_NAME["int8-default"], data, (), lambda *_: None)
    assert rounded.unseen == ("rare",)
    assert set(quantizers(rounded.module)) == {"usual"}


def test_an_excluded_layer_has_no_quantizer():
    rounded = round_module(mixed(), BY_NAME["int8-default"], split(), ("stem.0",), lambda *_: None)
    assert "stem.0" not in quantizers(rounded.module)
    assert "grouped" in quantizers(rounded.module)


def test_excluding_a_layer_that_is_not_there_names_those_that_are():
    with pytest.raises(InputError, match=r"no layer 'stm\.0' .* Layers are stem\.0, grouped"):
        round_module(mixed(), BY_NAME["int8-default"], split(), ("stm.0",), lambda *_: None)


def test_the_users_module_is_left_as_it_was():
    before = {name: value.clone() for name, value in mixed().state_dict().items()}
    quantized("int8-default")
    after = mixed().state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_calibration_that_is_not_finite_is_refused_in_one_line():
    rows = np.full((8, 3, 6, 6), np.nan, np.float32)
    data = Split("calibration", ({"input": rows}, np.zeros(8, np.int64)), np.arange(8, dtype=np.int64))
    with pytest.raises(InputError, match="INT8_DEFAULT_CFG cannot be calibrated"):
        round_module(mixed(), BY_NAME["int8-default"], data, (), lambda *_: None)


def test_no_sample_to_calibrate_on_is_refused():
    with pytest.raises(InputError, match="no sample to calibrate on"):
        round_module(mixed(), BY_NAME["int8-default"], split().take(0), (), lambda *_: None)


def test_folding_changes_nothing_but_the_graph():
    feeds, _ = split().read(np.arange(4))
    folded, left = fold_norms(mixed(), feeds)
    x = torch.from_numpy(split().read(np.arange(24))[0]["input"])
    with torch.no_grad():
        expected, found = mixed()(x), folded(x)
    assert left == []
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert torch.allclose(expected, found, atol=1e-4)


def test_a_norm_whose_input_has_another_reader_stays_and_is_named():
    class Forked(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
            self.second, self.other = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x):
            made = self.first(x)
            return self.other(self.second(self.norm(made) + made))

    net = Forked().eval()
    nn.init.constant_(net.norm.weight, 3.0)
    nn.init.constant_(net.other.weight, 2.0)
    feeds, _ = split().read(np.arange(4))
    folded, left = fold_norms(net, feeds)
    x = torch.from_numpy(feeds["input"])
    with torch.no_grad():
        assert torch.allclose(net(x), folded(x), atol=1e-4)
    assert left == ["norm"]


def pair(zero: int) -> onnx.ModelProto:
    """x -> Q -> DQ with a zero point of one's own."""
    values = [
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.array(zero, np.int8), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="the_pair"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_a_zero_point_that_is_not_zero_is_refused_with_its_node():
    check_symmetric(pair(0))
    with pytest.raises(InputError, match="the_pair: zero point is 3"):
        check_symmetric(pair(3))


@pytest.mark.parametrize(
    ("name", "provider", "capability", "linear", "expected"),
    [
        ("int8-default", "cuda", (7, 5), False, ""),
        ("int8-default", "tensorrt", (9, 0), False, ""),
        ("int8-default", "cuda", (7, 0), False, "it needs compute capability 7.5, and this GPU has 7.0"),
        ("int8-smoothquant", "cuda", (9, 0), False, "mostly convolutions"),
        ("int8-smoothquant", "cuda", (9, 0), True, ""),
        ("fp8-default", "cuda", (9, 0), True, "provider cuda has no kernels for it; tensorrt have"),
        ("fp8-default", "tensorrt", (8, 6), True, "it needs compute capability 8.9, and this GPU has 8.6"),
        ("fp8-default", "tensorrt", (8, 9), True, ""),
        ("nvfp4-default", "tensorrt", (9, 0), True, "it needs compute capability 10.0, and this GPU has 9.0"),
        ("nvfp4-default", "tensorrt", None, True, "the driver does not tell"),
    ],
)
def test_a_scheme_is_tried_where_runtime_and_device_can(name, provider, capability, linear, expected):
    found = why_not(BY_NAME[name], provider=provider, capability=capability, linear=linear)
    assert found == expected if not expected else expected in found


def test_auto_asks_for_every_scheme_and_a_name_for_one():
    assert asked_for("auto") == list(GPU_SCHEMES)
    assert [scheme.name for scheme in asked_for("fp8-default")] == ["fp8-default"]


def test_half_precision_keeps_inputs_and_outputs_and_halves_the_weights(tmp_path):
    feeds, _ = split().read(np.arange(6))
    export_onnx(mixed(), feeds, tmp_path / "m.onnx", ["output"])
    write_half(tmp_path / "m.onnx", tmp_path / "h.onnx")
    kinds = {item.data_type for item in onnx.load(tmp_path / "h.onnx").graph.initializer if len(item.dims) >= 2}
    assert TensorProto.FLOAT not in kinds
    expected = run_session(open_session(tmp_path / "m.onnx"), feeds, "m")["output"]
    found = run_session(open_session(tmp_path / "h.onnx"), feeds, "h")["output"]
    assert found.dtype == np.float32
    noise = sqnr_db(expected, found)
    assert noise is not None
    assert noise > 40  # 11 bits of significand
