"""Every layer is pruned with the outputs of the masked net, or refused with its name and the reason."""

import copy
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import made_pruned_nets as nets
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_nets import BLOCKS, RandomNet

from compress.data import SINGLE_INPUT
from compress.errors import InputError
from compress.prune.checks import difference, outputs_of
from compress.prune.groups import find_groups, reads_of, roots_of, structure_of
from compress.prune.replay import Structure, load_, read_structure, replay_, save
from compress.prune.time_limit import TooSlowError, within

IMAGES, VECTORS, SEQUENCES = (2, 3, 8, 8), (2, 12), (2, 5, 6)
KINDS = {
    "plain": (nets.plain, IMAGES),
    "residual": (nets.Residual, IMAGES),
    "concat": (nets.Joined, IMAGES),
    "chunk": (nets.Halves, IMAGES),
    "depthwise": (nets.depthwise, IMAGES),
    "grouped": (nets.grouped, IMAGES),
    "transposed": (nets.transposed, IMAGES),
    "group norm": (nets.group_norm, IMAGES),
    "flatten": (nets.flattened, IMAGES),
    "layer norm": (nets.layer_norm, VECTORS),
    "tied": (nets.Tied, VECTORS),
    "lstm": (nets.Recurrent, SEQUENCES),
    "attention": (nets.Attention, (2, 5, 16)),
}


# Groups (first layer: units) of a net with one block of that kind, beside those of its classifier.
GROUPS_OF = {
    "conv": {"stem": 8, "body.0": 8},
    "grouped": {"stem": 4, "body.0": 4},
    "depthwise": {"stem": 8},
    "multiplied": {"body.0.0": 2, "body.0.1": 8},
    "transposed": {"stem": 8, "body.0": 8},
    "transposed grouped": {"stem": 4, "body.0": 4},
    "batch norm": {"stem": 8},
    "group norm": {"stem": 2},
    "instance norm": {"stem": 8},
    "layer norm": {},
    "prelu": {"stem": 8},
    "relu": {"stem": 8},
    "pooling": {"stem": 8},
    "residual": {"stem": 8, "body.0.inner.0": 12},
    "concat": {"stem": 8, "body.0.left": 6, "body.0.right": 10, "body.0.mix": 8},
    "chunk": {"stem": 8, "body.0.wide": 8, "body.0.back": 8},
    "split": {"stem": 8, "body.0.back": 8},
    "shuffle": {"stem": 8, "body.0.after": 8},
    "attention": {"stem": 8, "body.0.query": 2},
    "torch attention": {},
    "linear": {"stem": 8, "body.0.up": 20, "body.0.down": 8},
    "lstm": {},
    "gru": {},
}


def made(kind):
    build, shape = KINDS[kind]
    torch.manual_seed(0)
    return build().eval(), {SINGLE_INPUT: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def halves(groups):
    """About half of the units of every group go, one always stays."""
    return {group.name: range(0, len(group.units) - 1, 2) for group in groups}


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_every_group_goes_and_the_outputs_are_those_of_the_masked_net(kind):
    net, feeds = made(kind)
    groups = find_groups(net, feeds).groups
    structure = structure_of(net, groups, halves(groups))
    assert difference(net, structure, reads_of(groups), feeds) == ""
    pruned = copy.deepcopy(net)
    replay_(pruned, structure)
    fewer, before = (sum(one.numel() for one in model.parameters()) for model in (pruned, net))
    assert fewer < before if groups else fewer == before
    assert {name: one.shape for name, one in outputs_of(pruned, feeds).items()} == {
        name: one.shape for name, one in outputs_of(net, feeds).items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_in_a_group_or_refused_with_a_reason(kind):
    net, feeds = made(kind)
    found = find_groups(net, feeds)
    spoken_of = {layer for group in found.groups for layer in group.layers} | {one.layer for one in found.refused}
    assert {name for name, _ in roots_of(net)} <= spoken_of
    assert all(one.reason for one in found.refused)


@pytest.mark.parametrize("kind", ["plain", "residual", "concat", "depthwise", "transposed", "flatten", "attention"])
def test_kinds_that_can_be_pruned_are(kind):
    net, feeds = made(kind)
    assert find_groups(net, feeds).groups


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_keeps_its_outputs(kind):
    net, feeds = made(kind)
    last = [name for name, _ in roots_of(net)][-1]
    assert last in {one.layer for one in find_groups(net, feeds).refused}


@pytest.mark.parametrize(("kind", "layer", "words"), [("tied", "first", "tied"), ("layer norm", "0", "LayerNorm")])
def test_what_cannot_be_pruned_is_refused_for_its_own_reason(kind, layer, words):
    net, feeds = made(kind)
    reasons = {one.layer: one.reason for one in find_groups(net, feeds).refused}
    assert words in reasons[layer]


def test_heads_of_attention_go_whole():
    net, feeds = made("attention")
    group = next(one for one in find_groups(net, feeds).groups if "query" in one.layers or "value" in one.layers)
    assert {len(unit) for unit in group.units} == {4}
    pruned = copy.deepcopy(net)
    replay_(pruned, structure_of(net, [group], {group.name: [0]}))
    assert pruned.heads == 3
    assert pruned.value.out_features == 12


def test_groups_of_a_group_norm_go_whole():
    net, feeds = made("group norm")
    (group,) = (one for one in find_groups(net, feeds).groups if one.name == "0")
    assert {len(unit) for unit in group.units} == {3}


def test_a_frozen_layer_stays_and_is_named():
    net, feeds = made("plain")
    net[0].weight.requires_grad_(False)
    found = find_groups(net, feeds)
    assert "frozen" in next(one.reason for one in found.refused if one.layer == "0")


def test_an_excluded_layer_stays_and_an_unknown_one_is_refused_with_those_there_are():
    net, feeds = made("plain")
    assert "0" not in {group.name for group in find_groups(net, feeds, exclude=["0"]).groups}
    with pytest.raises(InputError, match="no layer 'stem'"):
        find_groups(net, feeds, exclude=["stem"])


def test_a_net_without_trainable_parameters_is_refused():
    net, feeds = made("plain")
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable parameter"):
        find_groups(net, feeds)


def test_the_users_net_is_left_as_it_was():
    net, feeds = made("plain")
    net.train()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    groups = find_groups(net, feeds).groups
    structure_of(net, groups, halves(groups))
    assert net.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in net.modules())


FRESH = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import numpy as np
import made_pruned_nets as nets
from compress.data import SINGLE_INPUT
from compress.prune.checks import outputs_of
from compress.prune.replay import load_
net = nets.plain()
load_(net, Path({folder!r}))
x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
np.save(Path({folder!r}) / "out.npy", next(iter(outputs_of(net, {{SINGLE_INPUT: x}}).values())).numpy())
"""


def test_a_saved_net_gives_the_same_bits_in_a_fresh_process(tmp_path):
    net, feeds = made("plain")
    groups = find_groups(net, feeds).groups
    structure = structure_of(net, groups, halves(groups))
    replay_(net, structure)
    save(tmp_path, structure, net)
    script = FRESH.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert {path.name for path in tmp_path.iterdir()} == {"structure.json", "model.safetensors", "out.npy"}
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), next(iter(outputs_of(net, feeds).values())).numpy())


def test_a_structure_of_another_net_or_a_damaged_one_is_refused(tmp_path):
    net, feeds = made("plain")
    with pytest.raises(InputError, match="another model"):
        replay_(net, Structure(tensors={"nowhere.weight": {0: (1,)}}))
    with pytest.raises(InputError, match="another model"):
        replay_(net, Structure(tensors={"0.weight": {0: (99,)}}))
    (tmp_path / "structure.json").write_text('{"schema": "other/1"}')
    with pytest.raises(InputError, match="no channel map"):
        read_structure(tmp_path / "structure.json")
    groups = find_groups(net, feeds).groups
    structure = structure_of(net, groups, halves(groups))
    save(tmp_path, structure, net)  # the weights of the whole net beside the map of the pruned one
    with pytest.raises(InputError, match="does not fit"):
        load_(nets.plain(), tmp_path)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(blocks=st.lists(st.sampled_from(sorted(BLOCKS)), max_size=4), flatten=st.booleans())
def test_a_random_net_is_pruned_as_masked_or_refused_and_never_crashes(blocks, flatten):
    torch.manual_seed(0)
    net = RandomNet(blocks, flatten=flatten).eval()
    feeds = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}
    found = find_groups(net, feeds)
    structure = structure_of(net, found.groups, halves(found.groups))
    assert difference(net, structure, reads_of(found.groups), feeds) == ""
    spoken_of = {layer for group in found.groups for layer in group.layers} | {one.layer for one in found.refused}
    assert {name for name, _ in roots_of(net)} <= spoken_of
    assert all(one.reason for one in found.refused)


def test_dependencies_that_go_in_a_circle_are_refused_by_their_size_and_not_by_the_clock(monkeypatch):
    monkeypatch.setattr("compress.prune.graph.within", lambda seconds: nullcontext())
    torch.manual_seed(0)
    net = RandomNet(["torch attention"], flatten=True).eval()
    feeds = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}
    assert {one.layer for one in find_groups(net, feeds).refused} >= {"stem", "body.0.attention.out_proj"}


class SwallowsAnAlarm:
    """Ends only when an alarm falls into its destructor, where an exception is printed and lost."""

    def __del__(self):
        while True:
            pass


def endless():
    held = SwallowsAnAlarm()
    del held
    while True:
        pass


def test_an_alarm_that_falls_into_a_destructor_comes_again(monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: lost.append(one.exc_type))
    with pytest.raises(TooSlowError), within(0.05):
        endless()
    assert lost == [TooSlowError]


def test_a_limit_leaves_the_alarm_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    with within(10):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("kind", BLOCKS)
def test_every_kind_of_block_gives_the_groups_that_its_structure_allows(kind):
    torch.manual_seed(0)
    net = RandomNet([kind], flatten=False).eval()
    feeds = {SINGLE_INPUT: np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)}
    groups = find_groups(net, feeds).groups
    assert {group.name: len(group.units) for group in groups} == GROUPS_OF[kind] | {"hidden": 10}
