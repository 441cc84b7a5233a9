"""What moves at each level, on cases small enough to add up by hand."""

import nets_text
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from compress.analyze.trace import trace
from compress.analyze.traffic import traffic


class Of(nn.Module):
    """A model from a function."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def _bytes(function, *inputs, **modules):
    return traffic(trace(Of(function, **modules), inputs))


F4 = 4


def test_views_move_nothing_and_real_copies_move_twice():
    def shuffle(_, x):
        return x.view(4, 3, 2).transpose(0, 1).reshape(-1)

    moved = _bytes(shuffle, torch.rand(2, 3, 4))
    assert [sum(row.values()) for row in moved.per_op["U"]] == [0, 0, 2 * 24 * F4]


def test_an_expanded_tensor_is_read_once():
    moved = _bytes(lambda _, x: x.expand(7, 24) + 1, torch.rand(1, 24))
    assert moved.total["U"] == {"weight": 0, "kv": 0, "act": 0, "io": (24 + 7 * 24) * F4, "move": 0}


def test_one_tensor_used_twice_by_an_op_is_read_once():
    moved = _bytes(lambda _, x: x @ x.T, torch.rand(8, 8))
    assert moved.bytes_of("U") == 2 * 64 * F4


def test_an_embedding_reads_the_rows_asked_for():
    moved = _bytes(lambda m, i: m.table(i), torch.zeros(1, 5, dtype=torch.long), table=nn.Embedding(1000, 8))
    assert moved.total["C"] == {"weight": 5 * 8 * F4, "kv": 0, "act": 0, "io": 5 * 8 + 5 * 8 * F4, "move": 0}


def test_tied_weights_are_stored_and_read_once():
    model = nets_text.Gpt2(vocab=100, width=16, depth=1, heads=2, context=8)
    table = trace(model, (torch.zeros(1, 8, dtype=torch.long),))
    assert table.params == sum(p.numel() for p in model.parameters())
    assert table.weight_bytes == table.params * F4
    assert traffic(table).total["C"]["weight"] == table.weight_bytes


def test_a_module_called_twice_counts_twice_but_its_weights_are_compulsory_once():
    table = trace(Of(lambda m, x: m.layer(m.layer(x)), layer=nn.Linear(8, 8, bias=False)), (torch.rand(1, 8),))
    assert table.macs == 2 * 64
    moved = traffic(table)
    assert (moved.total["C"]["weight"], moved.total["U"]["weight"]) == (64 * F4, 2 * 64 * F4)


def test_elementwise_ops_join_their_producer_and_layout_copies_do_not():
    moved = _bytes(
        lambda m, x: m.layer(x).relu().mul(2).t().contiguous().add(1),
        torch.rand(8, 8),
        layer=nn.Linear(8, 8, bias=False),
    )
    g, u = moved.total["G"], moved.total["U"]
    # Written by the product's group, read and written by the copy, read by the sum.
    assert (g["act"], g["move"]) == (2 * 64 * F4, 2 * 64 * F4)
    assert u["act"] == g["act"] + 4 * 64 * F4


def test_fused_attention_never_moves_its_scores_written_either_way():
    x = torch.rand(1, 64, 32)
    fused, explicit = (
        _bytes(lambda m, x, explicit=explicit: m.a(x, explicit=explicit), x, a=nets_text.Attention(32, 4))
        for explicit in (False, True)
    )
    # The products leave another layout than the fused op, so one copy of the result is theirs alone.
    assert explicit.total["G"]["move"] == 2 * 64 * 32 * F4
    assert fused.bytes_of("G") == explicit.bytes_of("G") - explicit.total["G"]["move"]
    assert fused.bytes_of("U") - fused.bytes_of("G") == 4 * 4 * 64 * 64 * F4


def test_a_cache_that_grows_is_kv_and_only_its_new_part_must_be_written():
    model = nets_text.Llama(vocab=50, width=32, depth=2, heads=4, inner=64, kv_heads=2)
    past = [(torch.rand(3, 2, 9, 8), torch.rand(3, 2, 9, 8)) for _ in range(2)]
    table = trace(model, (torch.zeros(3, 1, dtype=torch.long), past))
    assert not table.error
    old, new = 2 * 2 * 3 * 2 * 9 * 8 * F4, 2 * 2 * 3 * 2 * 1 * 8 * F4
    assert traffic(table).total["C"]["kv"] == old + new
    assert traffic(table).total["G"]["kv"] >= 2 * old


def test_a_cache_kept_in_a_buffer_is_kv_and_only_the_written_slot_is_written():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("past", torch.zeros(1, 2, 16, 8))

        def forward(self, q, k):
            self.past[:, :, 4:5].copy_(k)
            return F.scaled_dot_product_attention(q, self.past, self.past)

    model = Cached()
    moved = traffic(trace(model, (torch.rand(1, 2, 1, 8), torch.rand(1, 2, 1, 8))))
    assert moved.total["C"]["kv"] == (16 + 1) * 2 * 8 * F4
    assert not model.past.any()


def test_a_write_into_the_input_is_compulsory():
    moved = _bytes(lambda _, x: x.relu_().sum(), torch.rand(10))
    assert moved.total["C"]["io"] == 2 * 10 * F4 + F4


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_bytes_grow_with_the_size_of_the_type_and_work_does_not(dtype):
    model, x = nets_text.Block(32, 4, before=True).to(dtype), torch.rand(1, 6, 32, dtype=dtype)
    table = trace(model, (x,))
    reference = trace(model.float(), (x.float(),))
    assert table.macs == reference.macs
    for level in "CGU":
        assert traffic(table).bytes_of(level) * 4 == traffic(reference).bytes_of(level) * dtype.itemsize


def _filled_by_halves(x, y):
    out = torch.empty_like(x)
    out[:4] = x[:4]
    out[4:] = y[4:]
    return out


# Each takes two (8, 8) tensors and gives one.
STEPS = {
    "relu": lambda x, y: x.relu(),
    "relu in place": lambda x, y: x.relu_(),
    "add": lambda x, y: x + y,
    "add in place": lambda x, y: x.add_(y),
    "add a row": lambda x, y: x + y[:1],
    "product": lambda x, y: x @ y,
    "softmax": lambda x, y: x.softmax(-1),
    "transpose": lambda x, y: x.t(),
    "copy of the transpose": lambda x, y: x.t().contiguous(),
    "joined halves": lambda x, y: torch.cat([x[:4], y[4:]]),
    "filled by halves": _filled_by_halves,
    "row written": lambda x, y: x.index_copy_(0, torch.tensor([1]), y[:1].clone()),
    "zeroed": lambda x, y: x.zero_(),
    "mean": lambda x, y: x.mean(0, keepdim=True).expand(8, 8),
    "rows picked": lambda x, y: x[torch.tensor([0] * 8)],
    "scores": lambda x, y: (x @ y.t()).softmax(-1) @ y,
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_levels_are_ordered_on_any_program(data):
    plan = [
        (data.draw(st.sampled_from(sorted(STEPS))), data.draw(st.integers(0, n + 2)), data.draw(st.integers(0, n + 2)))
        for n in range(data.draw(st.integers(1, 8)))
    ]
    results = data.draw(st.integers(1, 3))

    def program(m, x, y):
        held = [x, y, m.layer.weight.detach().clone()]
        for name, first, second in plan:
            held.append(STEPS[name](held[first], held[second]))
        return held[-results:]

    for fake in (True, False):
        table = trace(Of(program, layer=nn.Linear(8, 8)), (torch.rand(8, 8), torch.rand(8, 8)), fake=fake)
        # Programs that write into a repeated row are refused by torch; what ran before is counted all the same.
        assert not table.error or "single memory location" in table.error
        assert not table.unknown_ops
        moved = traffic(table)
        assert moved.bytes_of("C") <= moved.bytes_of("G") <= moved.bytes_of("U")
        for level, rows in moved.per_op.items():
            assert sum(sum(row.values()) for row in rows) == moved.bytes_of(level)
