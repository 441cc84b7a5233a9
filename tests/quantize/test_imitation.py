"""A module under rounding gives what the quantized file gives; the user's own module and names are untouched."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from torch import nn
from torch.nn import functional

from compress import zoo
from compress.data import SINGLE_INPUT, Split
from compress.device.runtime import open_session
from compress.export.onnx import export_onnx
from compress.export.parity import run_torch
from compress.measure.stats import sqnr_db
from compress.quantize.imitate import Imitation, imitate
from compress.quantize.learned import with_ranges
from compress.quantize.ort import CONV_OP_TYPES, quantize_static
from compress.quantize.placement import find_placement
from compress.quantize.points import read_points
from compress.quantize.ranges import calibrate, range_of
from compress.quantize.schemes import SCHEMES, Scheme, narrowed

CHANNEL, REDUCED, TENSOR, UNSIGNED = SCHEMES[1], SCHEMES[0], SCHEMES[3], SCHEMES[4]


class Sum(nn.Module):
    """A sum and an activation that only this module's forward knows of."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return functional.relu(a + b)


class Branches(nn.Module):
    """What names cannot find: sums, activations and means in forward, a shortcut, BatchNorm switched partly off."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.two = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm_two = nn.BatchNorm2d(6)
        self.act = nn.ReLU(inplace=True)
        self.sum, self.pool = Sum(), nn.MaxPool2d(2)
        self.head = nn.Linear(6, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.act(self.norm(self.one(images)))
        second = self.pool(self.sum(self.norm_two(self.two(first)), first))
        return self.head(second.mean(dim=(2, 3)))


@dataclass(frozen=True)
class Case:
    """A net, its float file and its data."""

    model: nn.Module
    path: Path
    split: Split

    def quantized(self, scheme: Scheme, folder: Path, imitation: Imitation | None = None) -> Path:
        ranges, target = calibrate(self.path, self.split, CONV_OP_TYPES), folder / f"{scheme.name}.onnx"
        scales = imitation.weight_scales() if imitation else None
        settled = with_ranges(ranges, imitation.ranges()) if imitation else ranges
        quantize_static(self.path, target, scheme, settled, CONV_OP_TYPES, [], weight_scales=scales)
        return target

    def imitated(self, scheme: Scheme, folder: Path) -> Imitation:
        feeds, _ = self.split.read(np.arange(4))
        placement = find_placement(self.model, self.path, read_points(self.quantized(scheme, folder)), feeds)
        return imitate(self.model, placement, scheme, calibrate(self.path, self.split, CONV_OP_TYPES))

    def closeness(self, imitation: Imitation, path: Path, *, optimise: bool = False) -> float:
        feeds, _ = self.split.read(np.arange(len(self.split)))
        wanted = run_torch(imitation.model, feeds)["output"].astype(np.float64)
        found = open_session(path, optimise=optimise).run(None, feeds)[0].astype(np.float64)
        closeness = sqnr_db(wanted.ravel(), found.ravel())
        return 999.0 if closeness is None else closeness


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.manual_seed(3)
    model = Branches()
    images = torch.randn(64, 1, 8, 8)
    for _ in range(5):  # statistics that are not the initial ones
        model(images)
    with torch.no_grad():
        model.norm.weight[0] = 0.0
        model.norm.weight[1] = -1.5
        model.norm_two.weight.mul_(torch.linspace(0.2, 5, 6))
    model.eval()
    split = Split("calibration", ({SINGLE_INPUT: images.numpy()}, np.zeros(64)), np.arange(64))
    path = tmp_path_factory.mktemp("branches") / "model.onnx"
    export_onnx(model, split.read(np.arange(4))[0], path, ["output"])
    return Case(model, path, split)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Case:
    images, labels = zoo.digits()["calibration"]
    split = Split("calibration", ({SINGLE_INPUT: images}, labels), np.arange(len(labels)))
    path = tmp_path_factory.mktemp("digits") / "model.onnx"
    model = zoo.digits_cnn()
    export_onnx(model, split.read(np.arange(4))[0], path, ["output"])
    return Case(model, path, split)


NARROW = [narrowed(CHANNEL, 4), narrowed(TENSOR, 4), narrowed(CHANNEL, 3)]


@pytest.mark.parametrize("scheme", [CHANNEL, REDUCED, TENSOR, UNSIGNED], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("name", ["branches", "digits"])
def test_the_module_gives_what_the_file_gives(name: str, scheme: Scheme, request, tmp_path: Path):
    """What is left is the order of sums: a value on the edge of a step goes the other way."""
    case = request.getfixturevalue(name)
    imitation = case.imitated(scheme, tmp_path)
    assert imitation.missing == ()
    path = case.quantized(scheme, tmp_path)
    assert case.closeness(imitation, path) > 38
    assert case.closeness(imitation, path) > case.closeness(_plain(case), path) + 3


def _plain(case: Case) -> Imitation:
    """No rounding at all, to compare with."""
    return Imitation(model=case.model, activations={}, weights={}, missing=(), names=())  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", NARROW, ids=lambda scheme: scheme.name)
def test_narrow_weights_are_served_with_the_scales_that_were_learned(scheme: Scheme, digits: Case, tmp_path: Path):
    imitation = digits.imitated(scheme, tmp_path)
    imitation.observe_(digits.split)
    path = digits.quantized(scheme, tmp_path, imitation)
    assert digits.closeness(imitation, path) > 30
    assert digits.closeness(imitation, path, optimise=True) > 30
    scales, weights = imitation.weight_scales(), read_points(path).weights
    values = {item.name: item for item in onnx.load(path).graph.initializer}
    assert set(scales) == {weight.name for weight in weights}
    for weight in weights:
        assert np.array_equal(numpy_helper.to_array(values[weight.scale]), scales[weight.name])


def test_ranges_are_those_of_the_net_under_rounding(digits: Case, tmp_path: Path):
    scheme = narrowed(TENSOR, 3)
    imitation = digits.imitated(scheme, tmp_path)
    before = imitation.ranges()
    imitation.observe_(digits.split)
    after = imitation.ranges()
    assert before.keys() == after.keys()
    assert before["input"] == after["input"] == (0.0, 1.0)
    assert before["output"] != after["output"]
    calibrated = calibrate(digits.path, digits.split, CONV_OP_TYPES)
    settled = with_ranges(calibrated, after)
    assert range_of(settled, "output") == after["output"]
    assert set(settled.keys()) == set(calibrated.keys())


def test_a_grid_survives_in_the_state_dict(digits: Case, tmp_path: Path):
    scheme = narrowed(CHANNEL, 4)
    trained, fresh = (digits.imitated(scheme, tmp_path) for _ in range(2))
    trained.observe_(digits.split)
    fresh.model.load_state_dict(trained.model.state_dict(), strict=True)
    assert fresh.ranges() == trained.ranges()
    feeds, _ = digits.split.read(np.arange(32))
    assert np.array_equal(run_torch(fresh.model, feeds)["output"], run_torch(trained.model, feeds)["output"])


def test_the_users_module_is_untouched_and_gets_its_own_names_back(digits: Case, tmp_path: Path):
    before = {name: tensor.clone() for name, tensor in digits.model.state_dict().items()}
    kinds = [type(module) for module in digits.model.modules()]
    imitation = digits.imitated(REDUCED, tmp_path)
    assert [type(module) for module in digits.model.modules()] == kinds
    state = imitation.plain_state()
    assert list(state) == list(before)
    assert all(torch.equal(state[name], before[name]) for name in before)
    zoo.digits_cnn().load_state_dict(state, strict=True)


def test_every_weight_and_norm_gets_a_gradient(digits: Case, tmp_path: Path):
    imitation = digits.imitated(narrowed(CHANNEL, 4), tmp_path)
    imitation.model.train()
    imitation.model(torch.from_numpy(digits.split.read(np.arange(8))[0][SINGLE_INPUT])).square().sum().backward()
    without = [name for name, parameter in imitation.model.named_parameters() if parameter.grad is None]
    assert without == []


def test_a_rounded_tensor_that_no_module_gives_is_named(tmp_path: Path):
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.layer(x)) * 2 + 1

    torch.manual_seed(0)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    split = Split("calibration", ({SINGLE_INPUT: x}, np.zeros(32)), np.arange(32))
    model, path = Hidden().eval(), tmp_path / "model.onnx"
    export_onnx(model, split.read(np.arange(4))[0], path, ["output"])
    imitation = Case(model, path, split).imitated(TENSOR, tmp_path)
    assert imitation.missing
    assert all("igmoid" in name or "ul" in name for name in imitation.missing)


@pytest.mark.parametrize(("bits", "largest"), [(4, 7), (3, 3)])
@pytest.mark.parametrize("base", [CHANNEL, TENSOR], ids=lambda scheme: scheme.name)
def test_a_narrow_file_is_smaller_and_still_runs_in_integer_kernels(
    base: Scheme, bits: int, largest: int, digits: Case, tmp_path: Path
):
    wide, narrow = (digits.quantized(scheme, tmp_path) for scheme in (base, narrowed(base, bits)))
    proto = onnx.load(narrow)
    values = {item.name: item for item in proto.graph.initializer}
    stored = [values[weight.quantized] for weight in read_points(narrow).weights]
    assert {item.data_type for item in stored} == {TensorProto.INT4}
    assert max(int(np.abs(numpy_helper.to_array(item).astype(int)).max()) for item in stored) == largest
    assert narrow.stat().st_size < wide.stat().st_size - sum(np.prod(item.dims) for item in stored) // 3
    onnx.checker.check_model(proto)
    optimised = tmp_path / "optimised.onnx"
    open_session(narrow, optimised_path=optimised)
    ops = [node.op_type for node in onnx.load(optimised).graph.node]
    assert "QLinearConv" in ops
    assert not {"Conv", "Cast", "FusedConv"} & set(ops)


def test_biases_follow_the_scales_of_narrow_weights(branches: Case, tmp_path: Path):
    """A bias is stored as s32 with scale x_scale * w_scale; read back it is the float bias to half a step."""
    path = branches.quantized(narrowed(CHANNEL, 4), tmp_path)
    floats = {item.name: numpy_helper.to_array(item) for item in onnx.load(branches.path).graph.initializer}
    values = {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}
    biases = [
        name.removesuffix("_quantized") for name in values if f"{name}_scale" in values and name.endswith("_quantized")
    ]
    assert len(biases) >= 3
    for name in biases:
        scale = values[f"{name}_quantized_scale"].astype(np.float64)
        back = values[f"{name}_quantized"].astype(np.float64) * scale
        assert (np.abs(back - floats[name]) <= 0.5 * scale + 1e-9).all()
