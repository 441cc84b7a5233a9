"""The count of each kind of op against numbers derived by hand, with no reference to the counter."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from nets import mobilenet_v2, resnet18
from nets_text import Block
from torch import nn

from compress.analyze import count
from compress.analyze.trace import trace


class Explicit(Block):
    """The same block with matmul, softmax, matmul instead of the fused op."""

    def forward(self, x):
        x = self.norm1(x + self.attention(x, explicit=True))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Reused(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


class FunctionalConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel, self.mix = nn.Parameter(torch.rand(16, 16, 3, 3)), nn.Parameter(torch.rand(16, 16))

    def forward(self, x):
        return torch.einsum("bchw,cd->bdhw", F.conv2d(x, self.kernel, padding=1), self.mix)


class Gram(nn.Module):
    def forward(self, x):
        return x @ x.T


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(512, 512, 2, batch_first=True), nn.Linear(512, 64)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def _sdpa_block() -> nn.Module:
    return nn.Sequential(Block(384, 12, before=False), Block(384, 12, before=False))


def _explicit_block() -> nn.Module:
    return nn.Sequential(Explicit(384, 12, before=False), Explicit(384, 12, before=False))


IMAGE = (1, 3, 224, 224)
# Name, model, input shape, million FLOPs (2 x MAC) to the printed digit.
CASES = [
    ("resnet-18", resnet18, IMAGE, 3628.147),
    ("mobilenet-v2", mobilenet_v2, IMAGE, 601.549),
    # 2 layers x (12 x 384^2 x 128 + 2 x 128^2 x 384) MAC
    ("encoder with fused attention", _sdpa_block, (1, 128, 384), 956.301),
    ("encoder with explicit attention", _explicit_block, (1, 128, 384), 956.301),
    # 50 x (2 x 4 x 512 x 1024 + 512 x 64)
    ("lstm", Recurrent, (1, 50, 512), 422.707),
    # 50 x 3 x 512 x 1024
    ("gru", lambda: nn.GRU(512, 512, batch_first=True), (1, 50, 512), 157.286),
    ("module reused three times", Reused, (1, 512), 1.573),
    # 56^2 x (16 x 16 x 9 + 16 x 16)
    ("functional convolution and einsum", FunctionalConv, (1, 16, 56, 56), 16.056),
    ("x @ x.T", Gram, (128, 128), 4.194),
    ("encoder layer", lambda: nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), (1, 128, 256), 218.104),
    ("linear on three dimensions", lambda: nn.Linear(3, 8), (5, 100, 3), 0.024),
    ("transposed convolution", lambda: nn.ConvTranspose2d(32, 16, 4, 2, 1), (1, 32, 14, 14), 3.211),
    ("grouped convolution", lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), (1, 32, 56, 56), 1.806),
]


@pytest.mark.parametrize("fake", [True, False], ids=["fake", "real"])
@pytest.mark.parametrize(("make", "shape", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_count_is_the_one_derived_by_hand(make, shape, expected, fake):
    model, x = make(), torch.rand(shape)
    with torch.set_grad_enabled(True):
        first = trace(model, (x,), fake=fake)
    with torch.no_grad():
        second = trace(model.eval(), (x,), fake=fake)
    assert not first.error
    assert not first.unknown_ops
    assert first.flops / 1e6 == pytest.approx(expected, abs=5.1e-4)
    assert second == first


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("fake", [True, False], ids=["fake", "real"])
def test_attention_is_counted_in_every_mode_and_form(fake, train):
    class Plain(nn.Module):
        def forward(self, q):
            return F.scaled_dot_product_attention(q, q, q)

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x):
            return self.inner(x, x, x)

    x = torch.rand(2, 10, 64)
    expected = {Plain: 12_582_912, SelfAttention: 706_560, nn.TransformerEncoderLayer: 1_361_920}
    models = [Plain(), SelfAttention(), nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)]
    for model, sample in zip(models, (torch.rand(1, 12, 64, 64), x, x), strict=True):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                assert trace(model.train(train), (sample,), fake=fake).flops == expected[type(model)]


def test_three_distinct_inputs_of_an_attention_count_as_three_projections():
    table = trace(nn.MultiheadAttention(64, 4, batch_first=True), tuple(torch.rand(2, 10, 64) for _ in range(3)))
    assert table.flops == 706_560


def test_macs_and_flops_are_both_named_and_a_factor_of_two_apart():
    table = count(nn.Linear(10, 10), torch.rand(1, 10))
    assert (table.macs, table.flops) == (100, 200)


@pytest.mark.parametrize(
    ("layer", "shape", "macs"),
    [
        (nn.ConvTranspose2d(32, 1, 3, bias=False), (1, 32, 1, 1), 288),
        (nn.ConvTranspose2d(6, 6, 2, stride=2, groups=3), (2, 6, 8, 8), 6_144),
        (nn.LSTM(8, 16), (2, 5, 8), 15_360),
        (nn.LSTM(8, 16, batch_first=True), (2, 5, 8), 15_360),
        # steps 10 x two directions x [4x16x(8+4) + 4x16 (projection), then 4x16x(8+4) + 4x16]
        (nn.LSTM(8, 16, 2, bidirectional=True, proj_size=4), (2, 5, 8), 10 * 2 * 2 * (64 * 12 + 64)),
        (nn.GRU(8, 16, 2, bidirectional=True), (2, 5, 8), 10 * 2 * (48 * 24 + 48 * 48)),
        (nn.RNN(8, 16), (2, 5, 8), 10 * 16 * 24),
        (nn.LSTM(8, 16), (5, 8), 5 * 64 * 24),
        (nn.LSTMCell(8, 16), (3, 8), 3 * 64 * 24),
        (nn.Conv1d(6, 4, 3, dilation=2, groups=2), (2, 6, 11), 2 * 4 * 7 * 9),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), 27 * 3 * 16),
        (nn.Conv2d(3, 8, 3, padding="same"), (3, 8, 8), 64 * 8 * 27),
    ],
    ids=str,
)
def test_every_shape_of_a_layer_counts_what_its_definition_says(layer, shape, macs):
    for fake in (True, False):
        assert trace(layer, (torch.rand(shape),), fake=fake).macs == macs


def test_packed_sequences_count_their_steps_not_their_padding():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 16, batch_first=True)

        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 2]), batch_first=True)
            return self.lstm(packed)[1][0]

    assert trace(Packed(), (torch.rand(2, 5, 8),)).macs == 7 * 64 * 24


@pytest.mark.parametrize(
    ("equation", "shapes", "macs"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 24),
        ("bij,bjk", [(5, 2, 3), (5, 3, 4)], 120),
        ("...ij,...jk->...ik", [(1, 2, 3), (7, 3, 4)], 168),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 2 * 3 * 4 + 2 * 4 * 5),
        ("ik,jkl->ij", [(2, 3), (4, 3, 9)], 24),
        ("ij->ji", [(2, 3)], 0),
        ("i,i->", [(6,), (6,)], 6),
    ],
)
def test_einsum_counts_its_contractions(equation, shapes, macs):
    class Product(nn.Module):
        def forward(self, *tensors):
            return torch.einsum(equation, *tensors)

    assert trace(Product(), tuple(torch.rand(shape) for shape in shapes)).macs == macs


@pytest.mark.parametrize(
    ("function", "shapes", "macs"),
    [
        (torch.matmul, [(2, 1, 3, 4), (5, 4, 6)], 2 * 5 * 3 * 4 * 6),
        (torch.matmul, [(4,), (4, 6)], 24),
        (torch.matmul, [(3, 4), (4,)], 12),
        (torch.bmm, [(2, 3, 4), (2, 4, 5)], 120),
        (torch.addmm, [(5,), (3, 4), (4, 5)], 60),
        (torch.baddbmm, [(1,), (2, 3, 4), (2, 4, 5)], 120),
        (torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 120),
        (torch.mv, [(3, 4), (4,)], 12),
        (torch.dot, [(4,), (4,)], 4),
        (F.bilinear, [(2, 3), (2, 4), (5, 3, 4)], 2 * 5 * 12),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_form_of_matrix_product_is_counted_with_broadcasting(function, shapes, macs):
    class Product(nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    assert trace(Product(), tuple(torch.rand(shape) for shape in shapes)).macs == macs


def test_grouped_query_attention_counts_all_query_heads_and_notes_causality():
    class Grouped(nn.Module):
        def forward(self, q, k):
            return F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

    table = trace(Grouped(), (torch.rand(1, 8, 5, 4), torch.rand(1, 2, 5, 4)))
    assert table.macs == 2 * 8 * 5 * 5 * 4
    assert [op.causal for op in table.ops if op.kind == "attention"] == [True]
