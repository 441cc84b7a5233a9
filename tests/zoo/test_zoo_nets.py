import ast
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from compress import zoo
from compress.analyze import count
from compress.zoo import nets, train

NETS = ("fashion_resnet", "fashion_mobile", "digits_cnn", "digits_encoder", "digits_deep", "digits_axial")
WEIGHTS_BYTES = {
    "fashion_resnet": 3_500_000,
    "fashion_mobile": 130_000,
    "digits_cnn": 70_000,
    "digits_encoder": 300_000,
    "digits_deep": 310_000,
    "digits_axial": 60_000,
}
AT_LEAST = {
    "fashion_resnet": 0.90,
    "fashion_mobile": 0.86,
    "digits_cnn": 0.96,
    "digits_encoder": 0.93,
    "digits_deep": 0.90,
    "digits_axial": 0.93,
}


def record(name):
    return json.loads((nets.WEIGHTS / f"{name}.json").read_text())


def images_for(name, n):
    side = 28 if name.startswith("fashion") else 8
    return torch.randn(n, 1, side, side, generator=torch.Generator().manual_seed(n))


def convolutions(net):
    return [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]


@pytest.fixture(params=NETS)
def name(request):
    return request.param


def test_a_net_arrives_trained_and_in_eval_mode(name):
    net = getattr(zoo, name)()
    shipped = load_file(nets.WEIGHTS / f"{name}.safetensors")
    assert not any(part.training for part in net.modules())
    assert all(torch.equal(value, shipped[key]) for key, value in net.state_dict().items())


def test_an_untrained_net_has_other_weights_of_the_same_shapes(name):
    fresh, shipped = (getattr(zoo, name)(pretrained=value).state_dict() for value in (False, True))
    assert {key: value.shape for key, value in fresh.items()} == {key: value.shape for key, value in shipped.items()}
    assert any(not torch.equal(fresh[key], shipped[key]) for key in fresh)


def test_each_call_gives_a_module_of_its_own(name):
    first, second = getattr(zoo, name)(), getattr(zoo, name)()
    assert {id(value) for value in first.parameters()}.isdisjoint(id(value) for value in second.parameters())


@torch.inference_mode()
def test_a_sample_scores_the_same_alone_and_in_a_batch(name):
    net, images = getattr(zoo, name)(), images_for(name, 5)
    together = net(images)
    alone = torch.cat([net(image[None]) for image in images])
    assert together.shape == (5, 10)
    # Other batch sizes may take other kernels, which add up in another order.
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_one_exported_program_serves_every_batch_size(name):
    net = getattr(zoo, name)()
    batch = torch.export.Dim("n", min=1, max=64)
    program = torch.export.export(net, (images_for(name, 2),), dynamic_shapes=({0: batch},)).module()
    for n in (1, 7):
        torch.testing.assert_close(program(images_for(name, n)), net(images_for(name, n)), rtol=1e-4, atol=1e-4)


def test_the_weights_stay_small(name):
    assert (nets.WEIGHTS / f"{name}.safetensors").stat().st_size <= WEIGHTS_BYTES[name]


def test_the_record_beside_the_weights_matches_them(name):
    told = record(name)
    assert told["params"] == sum(value.numel() for value in getattr(zoo, name)().parameters())
    assert told["command"].startswith(f"python -m compress.zoo.train {name} ")
    assert told["plan"]["epochs"] == train.ENTRIES[name].plan.epochs
    for part in told["scores"].values():
        assert part["top1"] == part["correct"] / part["n"] >= AT_LEAST[name]


@pytest.mark.parametrize("name", ["digits_cnn", "digits_encoder", "digits_deep", "digits_axial"])
def test_the_digits_nets_score_exactly_what_their_record_says(name):
    net, data = getattr(zoo, name)(), zoo.digits()
    for split, told in record(name)["scores"].items():
        assert train.score(net, data[split]) == train.Score(correct=told["correct"], n=told["n"])


def test_the_mobile_net_scores_what_its_record_says():
    told = record("fashion_mobile")["scores"]["select"]
    got = train.score(zoo.fashion_mobile(), zoo.fashion_mnist()["select"])
    # A tie between two classes may fall the other way on another CPU: 2 of 5,000.
    assert got.n == told["n"]
    assert abs(got.correct - told["correct"]) <= 2


def test_the_residual_net_scores_what_its_record_says_on_a_part():
    told = record("fashion_resnet")["scores"]["select"]
    images, labels = zoo.fashion_mnist()["select"]
    got = train.score(zoo.fashion_resnet(), (images[:500], labels[:500]))
    # Four standard errors of a share drawn from 500: right weights fail less than once in ten thousand.
    assert abs(got.top1 - told["top1"]) <= 4 * (told["top1"] * (1 - told["top1"]) / 500) ** 0.5


def test_all_widths_of_the_residual_net_are_multiples_of_eight():
    widths = [layer.out_channels for layer in convolutions(zoo.fashion_resnet(pretrained=False))]
    assert all(width % 8 == 0 for width in widths)


def test_the_mobile_net_filters_each_channel_alone():
    spatial = [layer for layer in convolutions(zoo.fashion_mobile(pretrained=False))[1:] if layer.kernel_size != (1, 1)]
    assert len(spatial) == 5
    assert all(layer.groups == layer.in_channels == layer.out_channels for layer in spatial)


@torch.inference_mode()
def test_the_padding_of_the_encoder_cannot_reach_its_answer():
    net, images = zoo.digits_encoder(), images_for("digits_encoder", 3)
    before = net(images)
    net.position[-net.padding :] += 100.0
    assert torch.equal(net(images), before)


@torch.inference_mode()
def test_the_scores_of_the_encoder_span_the_whole_of_float32(monkeypatch):
    seen = []
    softmax = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda scores, dim: seen.append(scores.min().item()) or softmax(scores, dim))
    net = zoo.digits_encoder()
    assert net(images_for("digits_encoder", 2)).isfinite().all()
    assert len(seen) == len(net.blocks)
    assert max(seen) <= -3.4e38


def test_a_reader_of_the_source_finds_every_public_function():
    tree = ast.parse(Path(zoo.__file__).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    pretrained = {"efficientnet_fashion", "efficientnet_data", "minilm_sentiment", "minilm_data"}
    assert found == {"fashion_mnist", "digits", *NETS, *pretrained}


@torch.inference_mode()
def test_folding_the_transposes_of_the_axial_net_changes_no_output_and_leaves_none():
    images = images_for("digits_axial", 3)
    turned, folded = zoo.digits_axial(), zoo.digits_axial(folded=True)
    expected = turned(images)
    torch.testing.assert_close(folded(images), expected, rtol=1e-4, atol=1e-4 * float(expected.std()))
    moved = [[op.op for op in count(net, images).ops if op.kind == "move"] for net in (turned, folded)]
    assert len(moved[0]) == 12
    assert moved[1] == []
