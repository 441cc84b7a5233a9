"""Quantizing for ONNX Runtime: honest ranges, masks left alone, overflow noticed, equal bytes for equal inputs."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from made_nets import save, split_of
from onnx import helper, numpy_helper

from compress.device import facts
from compress.errors import InputError
from compress.export.audit import audit_graph
from compress.quantize import ort
from compress.quantize.ort import CONV_OP_TYPES, LINEAR_OP_TYPES, check_saturation, quantize_dynamic, quantize_static
from compress.quantize.ranges import calibrate, mask_nodes, range_of
from compress.quantize.schemes import SCHEMES, WEIGHT_SCHEMES, schemes_for
from compress.quantize.ways import METHOD_STEPS
from compress.recipe.spec import Method

BY_NAME = {scheme.name: scheme for scheme in SCHEMES}
overflows_here = pytest.mark.skipif(
    not facts.saturates(facts.cpu_facts()["flags"]), reason="8-bit sums cannot overflow on this CPU"
)


def linear(path: Path) -> Path:
    """Weights and inputs of one sign: the worst case for 16-bit sums."""
    w = np.random.default_rng(0).uniform(0.5, 1, (512, 64)).astype(np.float32)
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, [512], [64])


def conv(path: Path, low: float = 0.5) -> Path:
    w = np.random.default_rng(0).uniform(low, 1, (32, 64, 3, 3)).astype(np.float32)
    return save(path, [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": w}, [64, 8, 8], [32, 6, 6])


def masked_attention(path: Path, magnitude: float) -> Path:
    """x @ w plus a mask constant, as encoders build it: scores + (1 - mask) * -magnitude."""
    rng = np.random.default_rng(0)
    values = {
        "w": rng.standard_normal((16, 16)).astype(np.float32),
        "mask": np.r_[np.ones(12), np.zeros(4)].astype(np.float32),
        "one": np.array(1, np.float32),
        "least": np.array(-magnitude, np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Sub", ["one", "mask"], ["hidden"]),
        helper.make_node("Mul", ["hidden", "least"], ["bias"]),
        helper.make_node("Add", ["scores", "bias"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"]),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    return save(path, nodes, values, [16], [16])


def uniform(*shape: int, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)


def static(source: Path, target: Path, scheme: str, x: np.ndarray, op_types=CONV_OP_TYPES, exclude=()) -> Path:
    ranges = calibrate(source, split_of(x), op_types)
    quantize_static(source, target, BY_NAME[scheme], ranges, op_types, exclude)
    return target


def test_the_recipe_knows_exactly_the_schemes_and_steps_of_the_tables():
    assert set(get_args(Method)) == {"auto", *BY_NAME, *METHOD_STEPS, *(scheme.name for scheme in WEIGHT_SCHEMES)}


def test_dynamic_schemes_are_for_linear_heavy_nets_only():
    assert {scheme.kind for scheme in schemes_for(linear_share=0.1, method="auto")} == {"static"}
    assert {scheme.kind for scheme in schemes_for(linear_share=0.9, method="auto")} == {"static", "dynamic"}
    for overflows, weights in ((True, "dynamic-s8-channel-reduced"), (False, "dynamic-s8-channel")):
        names = [scheme.name for scheme in schemes_for(linear_share=0.9, method="auto", overflows=overflows)]
        assert [name for name in names if name.startswith("dynamic")] == [weights, "dynamic-u8-tensor"]
    assert [scheme.name for scheme in schemes_for(linear_share=0.1, method="dynamic-u8-tensor")] == [
        "dynamic-u8-tensor"
    ]


@pytest.mark.parametrize("samples", [1, 15, 16, 17, 50])
def test_ranges_are_the_extremes_of_the_data_whatever_the_batching(tmp_path, samples):
    x = uniform(samples, 64, 8, 8, low=-3, high=2)
    ranges = calibrate(conv(tmp_path / "m.onnx"), split_of(x), CONV_OP_TYPES)
    low, high = range_of(ranges, "x")
    assert (low, high) == (min(0.0, x.min()), max(0.0, x.max())) or (low, high) == (x.min(), x.max())


@pytest.mark.parametrize(("name", "op_types"), [("conv", CONV_OP_TYPES), ("linear", LINEAR_OP_TYPES)])
@overflows_here
def test_overflowing_sums_are_noticed_and_seven_bit_weights_cure_them(tmp_path, name, op_types):
    source = {"conv": conv, "linear": linear}[name](tmp_path / "m.onnx")
    x = uniform(40, 64, 8, 8) if name == "conv" else uniform(40, 512)
    found = {
        scheme: check_saturation(static(source, tmp_path / "q.onnx", scheme, x, op_types), source, {"x": x[:8]}, 1)
        for scheme in ("u8s8-channel", "u8s8-channel-reduced")
    }
    assert found["u8s8-channel"]["saturates"]
    assert found["u8s8-channel"]["sqnr_db"] < 40
    assert not found["u8s8-channel-reduced"]["saturates"]
    assert found["u8s8-channel-reduced"]["sqnr_integer_db"] > found["u8s8-channel"]["sqnr_integer_db"] + 10


@pytest.mark.parametrize("magnitude", [3.4e38, 65504.0, 10000.0])
def test_mask_constants_are_named_and_kept_out_of_the_ranges(tmp_path, magnitude):
    source = masked_attention(tmp_path / "m.onnx", magnitude)
    x = uniform(40, 16, low=-1)
    op_types = (*LINEAR_OP_TYPES, "Add", "Mul", "Sub", "Softmax")
    ranges = calibrate(source, split_of(x), op_types)
    masks = mask_nodes(source, ranges)
    assert {"n2/Mul", "n3/Add"} <= set(masks)
    assert not {"n0/MatMul", "n5/MatMul"} & set(masks)
    quantize_static(source, tmp_path / "naive.onnx", BY_NAME["u8s8-channel-reduced"], ranges, op_types, [])
    quantize_static(source, tmp_path / "q.onnx", BY_NAME["u8s8-channel-reduced"], ranges, op_types, masks)
    expected, naive, found = (run(path, x) for path in (source, tmp_path / "naive.onnx", tmp_path / "q.onnx"))
    assert np.abs(found - expected).max() < 0.1 * np.abs(naive - expected).max()
    assert largest_scale(tmp_path / "q.onnx") < 1 < largest_scale(tmp_path / "naive.onnx")


def run(path: Path, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def largest_scale(path: Path) -> float:
    proto = onnx.load(path)
    names = {node.input[1] for node in proto.graph.node if node.op_type == "QuantizeLinear"}
    return max(float(numpy_helper.to_array(item).max()) for item in proto.graph.initializer if item.name in names)


@pytest.mark.parametrize("scheme", [scheme.name for scheme in SCHEMES if scheme.kind == "static"])
def test_every_static_scheme_quantizes_a_convolution_closely(tmp_path, scheme):
    source = conv(tmp_path / "m.onnx", low=-1.0)
    x = uniform(40, 64, 8, 8, low=-1)
    target = static(source, tmp_path / "q.onnx", scheme, x)
    expected, found = run(source, x), onnxruntime_in_float(target, x)
    # 8 bits leave at least 1/127 of the range per factor; three of those and a margin of two.
    assert np.abs(found - expected).max() < 6 / 127 * np.abs(expected).max()


def onnxruntime_in_float(path: Path, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.mark.parametrize("scheme", [scheme.name for scheme in SCHEMES if scheme.kind == "dynamic"])
def test_every_dynamic_scheme_gives_integer_products(tmp_path, scheme):
    from compress.device.runtime import open_session

    source = linear(tmp_path / "m.onnx")
    quantize_dynamic(source, tmp_path / "q.onnx", BY_NAME[scheme], [])
    session = open_session(tmp_path / "q.onnx", optimised_path=tmp_path / "o.onnx")
    assert audit_graph(tmp_path / "o.onnx", session.get_providers(), "cpu")["accelerated"]


def test_excluded_nodes_stay_in_float(tmp_path):
    from compress.device.runtime import open_session

    source = masked_attention(tmp_path / "m.onnx", 1.0)
    static(source, tmp_path / "q.onnx", "u8s8-channel-reduced", uniform(20, 16), LINEAR_OP_TYPES, ["n0/MatMul"])
    session = open_session(tmp_path / "q.onnx", optimised_path=tmp_path / "o.onnx")
    audit = audit_graph(tmp_path / "o.onnx", session.get_providers(), "cpu")
    assert (audit["integer_ops"], audit["float_ops"]) == (1, 1)


def test_a_model_that_overflows_on_the_data_is_refused_before_a_scale_is_written(tmp_path):
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    source = save(tmp_path / "m.onnx", nodes, {"w": np.ones((4, 4), np.float32)}, [4], [4])
    with pytest.raises(InputError, match="its range over the calibration split"):
        calibrate(source, split_of(np.full((8, 4), 200, np.float32)), LINEAR_OP_TYPES)


def test_a_model_with_nothing_to_quantize_is_refused(tmp_path):
    source = save(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], {}, [4], [4])
    with pytest.raises(InputError, match="no operator that can be quantized"):
        static(source, tmp_path / "q.onnx", "u8s8-channel", uniform(8, 4))
    assert not (tmp_path / "q.onnx").exists()


def test_constant_and_all_zero_channels_get_usable_scales(tmp_path):
    w = np.zeros((4, 3, 3, 3), np.float32)
    w[1] = 1.0
    source = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"])], {"w": w}, [3, 6, 6], [4, 4, 4])
    for x in (np.zeros((8, 3, 6, 6), np.float32), np.ones((8, 3, 6, 6), np.float32), uniform(8, 3, 6, 6)):
        target = static(source, tmp_path / "q.onnx", "u8s8-channel-reduced", x)
        expected, found = run(source, x), run(target, x)
        assert np.isfinite(found).all()
        assert np.abs(found - expected).max() <= 0.05 * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("overflows", [True, False])
@pytest.mark.parametrize(("lost_db", "told"), [(0.3, False), (1.4, True), (8.0, True)])
def test_what_integer_kernels_lose_is_called_overflow_where_sums_can_overflow(monkeypatch, overflows, lost_db, told):
    truth, noise = np.random.default_rng(0).normal(0, 1, (2, 1000))
    in_float = truth + 0.1 * noise
    in_integers = truth + 0.1 * noise * 10 ** (lost_db / 20)
    runs = iter([truth, in_integers, in_float])
    monkeypatch.setattr(ort, "_run", lambda *_args, **_kwargs: next(runs))
    monkeypatch.setattr(ort, "overflows_here", lambda: overflows)
    found = check_saturation(Path("q.onnx"), Path("f.onnx"), {}, 1)
    assert found["lost_db"] == pytest.approx(lost_db, abs=0.01)
    assert found["saturates"] == (told and overflows)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_quantize_ort import conv, linear, static, uniform, BY_NAME
from compress.quantize.ort import quantize_dynamic
folder = Path({folder!r})
static(conv(folder / "c.onnx"), folder / "static.onnx", "u8s8-channel-reduced", uniform(20, 64, 8, 8))
quantize_dynamic(linear(folder / "l.onnx"), folder / "dynamic.onnx", BY_NAME["dynamic-s8-channel-reduced"], [])
"""


def test_equal_inputs_give_equal_bytes_in_every_process(tmp_path):
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        script = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(tmp_path / seed))
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin"}
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    for name in ("static.onnx", "dynamic.onnx"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


class Counted:
    """A dataset that makes its samples when asked and remembers how many were asked for at once."""

    def __init__(self, samples: int) -> None:
        self.samples, self.alive, self.most = samples, 0, 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, i: int):
        return np.random.default_rng(i).uniform(0, 1, (64, 8, 8)).astype(np.float32), 0


MEMORY = """
import sys, resource
from pathlib import Path
sys.path.insert(0, {tests!r})
import numpy as np
from test_quantize_ort import conv, Counted, CONV_OP_TYPES
from compress.data import Split, SINGLE_INPUT
from compress.quantize.ranges import calibrate
import compress.data
compress.data.SINGLE_INPUT = "x"
source = conv(Path({folder!r}) / "m.onnx")
peaks = []
for samples in (64, 200, 2000):
    calibrate(source, Split("calibration", Counted(samples), np.arange(samples)), CONV_OP_TYPES)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[1], peaks[2])
"""


def test_memory_of_calibration_does_not_grow_with_the_number_of_samples(tmp_path):
    script = MEMORY.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    assert many <= 1.1 * few
