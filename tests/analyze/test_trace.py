"""The torch front end as a guest: what it accepts, what it says, and that it leaves no trace behind."""

import gc
import random
from collections import namedtuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from compress.analyze.trace import count, trace


def _hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Keeper(nn.Module):
    """A model that remembers: a table it makes on first use, a list, a counter, statistics, randomness."""

    def __init__(self):
        super().__init__()
        self.table, self.seen, self.calls = None, [], 0
        self.norm, self.layer, self.drop = nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.table = torch.arange(4.0) if self.table is None else self.table
        self.calls += 1
        self.steps += 1
        self.seen.append(x)
        noise = torch.rand(4) + random.random() + np.random.rand()
        return self.drop(self.layer(self.norm(x))) + self.table + noise


@pytest.mark.parametrize("fake", [True, False], ids=["fake", "real"])
@pytest.mark.parametrize("fails", [True, False], ids=["raising", "returning"])
def test_the_model_is_given_back_as_it_was(fake, fails):
    model = Keeper().train()
    model.layer.eval()
    model.layer.register_forward_hook(lambda *_: None)
    x = torch.rand(2, 5 if fails else 4)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    storages = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    seeds = torch.get_rng_state().clone(), random.getstate(), np.random.get_state()[1].copy()
    table = trace(model, (x,), fake=fake)
    assert bool(table.error) == fails
    assert (model.table, model.seen, model.calls) == (None, [], 0)
    assert [m.training for m in (model, model.norm, model.layer)] == [True, True, False]
    assert _hooks(model) == 1
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == storages
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), seeds[0])
    assert random.getstate() == seeds[1]
    assert (np.random.get_state()[1] == seeds[2]).all()
    assert torch.backends.mha.get_fastpath_enabled()
    assert _get_current_dispatch_mode_stack() == []
    model(torch.rand(2, 4)).sum().backward()


def test_a_model_that_looks_at_values_is_counted_on_real_tensors():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    table = count(Looks(), torch.ones(1, 3))
    assert (table.macs, table.error) == (9, "")


def test_a_model_that_raises_gives_a_partial_table_with_the_reason():
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

        def forward(self, x):
            self.first(x)
            raise KeyError("boo\nsecond line")

    table = count(Breaks(), torch.ones(1, 3))
    assert (table.macs, table.coverage, table.error) == (9, 0.5, "KeyError: 'boo\\nsecond line'")


def test_a_model_on_the_meta_device_that_looks_at_values_says_so():
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3, device="meta")

        def forward(self, x):
            return x if self.layer(x).sum() > 0 else -x

    table = count(Looks(), torch.ones(1, 3))
    assert table.macs == 9
    assert table.error


Pair = namedtuple("Pair", "left right")


def test_inputs_and_outputs_may_be_nested_named_or_absent():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, batch, *, scale=None, flag=True):
            y = self.layer(batch["pair"].left + batch["rest"][0])
            return Pair({"a": [y if scale is None else y * scale]}, None) if flag else None

    x = torch.rand(1, 3)
    batch = {"pair": Pair(x, x), "rest": [x]}
    table = count(Nested(), {"batch": batch, "scale": torch.rand(1)})
    assert (table.macs, table.error, len(table.outputs)) == (6, "", 1)
    assert {t.name for t in table.inputs} >= {"scale"}
    assert trace(Nested(), (batch,), {"flag": False}).outputs == ()
    assert count(nn.Linear(3, 2), np.ones((1, 3), np.float32)).macs == 6


def test_a_compiled_model_is_counted_as_the_plain_one():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.rand(1, 3)
    plain = trace(model, (x,))
    assert trace(torch.compile(model, backend="eager"), (x,)) == plain
    assert trace(nn.Sequential(torch.compile(model[0], backend="eager"), model[1]), (x,)).ops == plain.ops


def test_ops_carry_the_name_of_their_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    assert [op.module for op in trace(model, (torch.rand(1, 3),)).ops] == ["0", "1.0", "1.1"]


def test_a_dynamically_quantized_linear_is_counted_with_its_one_byte_weights():
    import warnings

    with warnings.catch_warnings():
        # The eager quantizer announces its retirement; models made with it are still in use.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 32), nn.ReLU()), {nn.Linear})
    table = trace(model, (torch.rand(4, 16),))
    assert (table.macs, table.params, table.weight_bytes, table.unknown_ops) == (4 * 16 * 32, 512, 512, ())


@torch.library.custom_op("counting_test::twice", mutates_args=())
def _twice(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight @ weight


@_twice.register_fake
def _(x, weight):
    return x @ weight


def test_an_unknown_op_is_listed_and_a_formula_makes_it_known():
    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 4))

        def forward(self, x):
            return torch.ops.counting_test.twice(x, self.weight).relu()

    model, x = Custom(), torch.rand(3, 4)
    table = count(model, x)
    assert table.unknown_ops == (("counting_test::twice", 1),)
    # Unfused: the op moves 48 + 64 + 48 bytes of 160 + 96.
    assert table.coverage == pytest.approx(96 / 256)
    formula = {"counting_test::twice": lambda call: 2 * call.inputs[0].numel * call.inputs[1].shape[1]}
    known = count(model, x, formulas=formula)
    assert (known.macs, known.unknown_ops, known.coverage) == (2 * 3 * 4 * 4, (), 1.0)
    assert count(model, x) == table


def _naive_macs(x, out, kernel, *, groups, transposed):
    """Count the products one by one, those with padding too; a channel only meets the channels of its group."""
    positions = x[2:] if transposed else out[2:]
    steps = 0
    for _, i, o in np.ndindex(x[0], x[1], out[1]):
        if i * groups // x[1] == o * groups // out[1]:
            steps += sum(1 for _ in np.ndindex(*positions, *kernel))
    return steps


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_convolution_counts_the_products_a_naive_loop_makes(data):
    draw = data.draw
    rank, transposed = draw(st.integers(1, 2)), draw(st.booleans())
    groups, stride, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    cin, cout = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    options = {"stride": stride, "dilation": dilation, "padding": draw(st.integers(0, 1)), "groups": groups}
    x = torch.rand(draw(st.integers(1, 2)), cin, *(draw(st.integers(3, 5)) for _ in range(rank)))
    shape = (cin, cout // groups, *kernel) if transposed else (cout, cin // groups, *kernel)
    convolve = getattr(F, f"conv{'_transpose' if transposed else ''}{rank}d")

    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(shape))

        def forward(self, x):
            return convolve(x, self.weight, **options)

    model = Convolution()
    expected = _naive_macs(x.shape, model(x).shape, kernel, groups=groups, transposed=transposed)
    assert trace(model, (x,)).macs == expected


def test_a_scripted_model_is_counted_on_real_tensors():
    import warnings

    with warnings.catch_warnings():
        # TorchScript announces its retirement; scripted models are still in use.
        warnings.simplefilter("ignore", DeprecationWarning)
        model = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval())
    table = trace(model, (torch.rand(2, 3),))
    assert (table.macs, table.params, table.error) == (24, 16, "")


def test_ops_decomposed_by_the_model_itself_count_the_same():
    class Outside(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            with torch.inference_mode(False), torch.no_grad():
                return self.inner(x)

    encoder = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    for fake in (True, False):
        assert trace(Outside(encoder), (torch.rand(2, 10, 64),), fake=fake).flops == 1_361_920
        assert trace(Outside(nn.LSTM(8, 16)), (torch.rand(2, 5, 8),), fake=fake).flops == 30_720


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_fake_and_real_tensors_give_the_same_table(mode):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(2), nn.Dropout(0.5)
    )
    model.append(nn.TransformerEncoderLayer(9, 3, 16, batch_first=True))
    getattr(model, mode)()
    x = torch.rand(2, 3, 8, 8)
    assert trace(model, (x,)) == trace(model, (x,), fake=False)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was_also_when_the_model_raises(enabled):
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError(f"collecting: {gc.isenabled()}")

    before = gc.isenabled()
    gc.enable() if enabled else gc.disable()
    try:
        assert count(Raises(), torch.rand(1)).error
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if before else gc.disable()
