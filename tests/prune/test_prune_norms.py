"""Statistics of batch normalisation after channels went, and a net proved in a fresh process."""

import copy

import made_pruned_nets as nets
import numpy as np
import pytest
import torch
from torch import nn

from compress import zoo
from compress.data import SINGLE_INPUT
from compress.errors import InputError
from compress.prune.checks import outputs_of
from compress.prune.counts import Counter
from compress.prune.groups import find_groups, structure_of
from compress.prune.norms import reestimate_
from compress.prune.reload import Factory, reloaded_outputs
from compress.prune.replay import Structure, cut, expand, replay_, save
from compress.prune.widths import uniform


def batches(values, size=32):
    return [{SINGLE_INPUT: values[start : start + size]} for start in range(0, len(values), size)]


def half_of(net, feeds):
    groups = find_groups(net, feeds).groups
    widths = uniform(groups, 0.5, 8)
    removed = {group.name: range(widths[group.name], len(group.units)) for group in groups}
    return structure_of(net, groups, removed)


def test_statistics_are_the_means_over_the_batches_and_nothing_else_changes():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5), nn.Dropout(0.5))
    net.train()
    values = np.random.default_rng(0).standard_normal((64, 3, 4, 4)).astype(np.float32)
    before = {name: tensor.clone() for name, tensor in net.named_parameters()}
    assert reestimate_(net, batches(values)) == 1
    with torch.no_grad():
        made = net[0](torch.from_numpy(values)).numpy().astype(np.float64)
    np.testing.assert_allclose(net[1].running_mean.numpy(), made.mean(axis=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    each = [made[start : start + 32].var(axis=(0, 2, 3), ddof=1) for start in (0, 32)]
    np.testing.assert_allclose(net[1].running_var.numpy(), np.mean(each, axis=0), rtol=1e-4)
    assert net.training
    assert net[1].training
    assert net[1].momentum == 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.named_parameters())
    assert reestimate_(nets.grouped(), batches(values)) == 0


def test_new_statistics_bring_back_most_of_what_cutting_cost():
    net, splits = zoo.fashion_resnet(), zoo.fashion_mnist()
    images, labels = (part[:1000] for part in splits["select"])
    structure = half_of(net, {SINGLE_INPUT: images[:2]})
    pruned = copy.deepcopy(net)
    replay_(pruned, structure)

    def score():
        return (outputs_of(pruned, {SINGLE_INPUT: images})["output"].argmax(1).numpy() == labels).mean()

    before = score()
    reestimate_(pruned, batches(splits["calibration"][0][:512], 64))
    assert score() > before


def test_an_expanded_tensor_holds_the_cut_one_in_its_places():
    tensor = torch.arange(60.0).reshape(3, 4, 5)
    axes = {0: (0, 2), 2: (1, 3, 4)}
    wide = expand(tensor, cut(tensor, axes), axes)
    assert torch.equal(cut(wide, axes), cut(tensor, axes))
    assert int((wide != 0).sum()) == int((cut(tensor, axes) != 0).sum())
    assert torch.equal(expand(torch.tensor(0), torch.tensor(7), {}), torch.tensor(7))


def test_an_expanded_net_gives_what_the_narrow_one_gives():
    """So importance can be asked of the whole net in later rounds."""
    net = zoo.digits_cnn()
    feeds = {SINGLE_INPUT: zoo.digits()["select"][0][:4]}
    structure = half_of(net, feeds)
    narrow, wide = copy.deepcopy(net), copy.deepcopy(net)
    replay_(narrow, structure)
    state = narrow.state_dict()
    wide.load_state_dict(
        {
            name: expand(tensor, state[name], structure.tensors.get(name, {}))
            for name, tensor in wide.state_dict().items()
        }
    )
    torch.testing.assert_close(outputs_of(wide, feeds)["output"], outputs_of(narrow, feeds)["output"])


def test_a_fresh_process_gives_the_same_outputs_from_the_users_factory(tmp_path):
    net = zoo.digits_cnn()
    feeds = {SINGLE_INPUT: zoo.digits()["select"][0][:4]}
    structure = half_of(net, feeds)
    replay_(net, structure)
    save(tmp_path, structure, net)
    factory = Factory(ref="compress.zoo:digits_cnn", kwargs={"pretrained": False}, folders=[tmp_path], seed=0)
    found = reloaded_outputs(factory, tmp_path, feeds)
    np.testing.assert_array_equal(found["output"], outputs_of(net, feeds)["output"].numpy())
    other = Factory(ref="compress.zoo:digits_encoder", kwargs={}, folders=[tmp_path], seed=0)
    with pytest.raises(InputError, match=r"cannot be loaded in a fresh process .*another model"):
        reloaded_outputs(other, tmp_path, feeds)


def test_nothing_cut_is_the_whole_net():
    net = zoo.digits_cnn()
    feeds = {SINGLE_INPUT: zoo.digits()["select"][0][:4]}
    counter = Counter(net, [], feeds)
    assert counter.params({}) == sum(one.numel() for one in net.parameters())
    whole = copy.deepcopy(net)
    replay_(whole, Structure())
    assert torch.equal(outputs_of(whole, feeds)["output"], outputs_of(net, feeds)["output"])
