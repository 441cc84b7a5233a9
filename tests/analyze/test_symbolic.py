"""Closed forms in batch and sequence equal the trace at sizes nobody exported."""

import pytest
import torch
from torch import nn

from compress.analyze.symbolic import B, NotSymbolic, S, closed_form
from compress.analyze.trace import trace
from compress.analyze.traffic import traffic


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids):
        return self.head(self.layer(self.table(ids)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x, mask):
        return {"y": (self.a(x) * mask.unsqueeze(-1), None)}


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return self.a(x) if bool(x.sum() > 0) else x


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.MaxPool2d(2),
        nn.Dropout(), nn.Flatten(), nn.Linear(8 * 7 * 7, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Linear(20, 40), nn.GELU(), nn.LayerNorm(40), nn.Linear(40, 4), nn.Softmax(-1))


def image(batch, _length):
    return torch.zeros(batch, 3, 16, 16)


def row(batch, _length):
    return torch.zeros(batch, 20)


def ids(batch, length):
    return torch.zeros(batch, length, dtype=torch.long)


def steps(batch, length):
    return torch.zeros(batch, length, 8)


NETS = [(conv_net, image, ()), (mlp, row, ()), (Encoder, ids, ("0",)), (Recurrent, steps, ("0",))]


@pytest.mark.parametrize(("build", "inputs", "sequence"), NETS, ids=lambda one: getattr(one, "__name__", str(one)))
def test_a_closed_form_equals_the_trace_at_other_sizes(build, inputs, sequence):
    model = build()
    form = closed_form(model, (inputs(1, 6),), sequence=sequence)
    lengths = (5, 9, 33) if "s" in form.symbols else (6,)
    for batch in (1, 2, 7, 64):
        for length in lengths:
            table = trace(model, (inputs(batch, length),))
            moved = traffic(table)
            assert form.at(batch, length) == {
                "macs": table.macs,
                "unfused_bytes": moved.bytes_of("U"),
                "compulsory_bytes": moved.bytes_of("C"),
            }


def test_attention_grows_with_the_square_of_the_sequence_and_the_batch_stays_linear():
    form = closed_form(Encoder(), (ids(1, 6),), sequence=("0",))
    assert form.symbols == ("b", "s")
    assert form.at(2, 10)["macs"] == 2 * form.at(1, 10)["macs"]
    # QK^T and PV: 4 heads of 8 elements, once per pair of tokens.
    assert form.macs.coeff(S, 2) == 2 * 4 * 8 * B


def test_an_lstm_whose_length_the_exporter_fixes_is_free_in_its_batch():
    form = closed_form(Recurrent(), (steps(1, 6),), sequence=("0",))
    assert form.symbols == ("b",)
    assert str(form.macs) == f"{6 * 4 * 16 * (8 + 16 + 16 + 16)}*b"


def test_named_inputs_and_nested_outputs_are_free_together():
    model = Masked()
    form = closed_form(model, (), {"x": steps(1, 6), "mask": torch.ones(1, 6)}, sequence=("x", "mask"))
    table = trace(model, (), {"x": steps(4, 11), "mask": torch.ones(4, 11)})
    assert form.at(4, 11)["macs"] == table.macs == 4 * 11 * 64
    assert form.at(4, 11)["unfused_bytes"] == traffic(table).bytes_of("U")


def test_a_model_that_looks_at_values_has_none_and_says_why():
    model = Branches()
    with pytest.raises(NotSymbolic, match=r"data-dependent|Could not guard|GuardOn"):
        closed_form(model, (steps(1, 6),))
    assert model.training
