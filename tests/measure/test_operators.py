"""Measured operators: the rows are those of the op table, and the model is given back as it was."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from compress.analyze.operators import torch_operator_times
from compress.analyze.runtime_operators import kind_of, sorted_operators
from compress.analyze.summary import analysis_dict
from compress.analyze.trace import trace
from compress.zoo import nets


class Counting(nn.Module):
    """Writes to a buffer and keeps its last output, as caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.last = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = self.drop(torch.relu(self.layer(input)))
        return self.last.transpose(0, 1).contiguous()


MODELS = {
    "conv": (lambda: nets.digits_cnn(pretrained=False), (2, 1, 8, 8)),
    "encoder": (lambda: nets.digits_encoder(pretrained=False), (2, 1, 8, 8)),
    "lstm": (lambda: nn.Sequential(nn.Linear(3, 5), nn.LSTM(5, 7, num_layers=2, batch_first=True)), (2, 4, 3)),
    "fast path": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 3, 8)),
    "buffers": (Counting, (3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_the_op_table_in_its_order(name: str) -> None:
    make, shape = MODELS[name]
    model = make()
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = torch_operator_times(model, {"input": values}, threads=1, repeats=2)
    table = trace(model, (torch.from_numpy(values),))
    assert [(row["module"], row["op"]) for row in found.rows] == [(op.module, op.op) for op in table.ops]
    document = analysis_dict(table, measured=found.rows)
    assert document["unattributed_ms"] == 0
    assert all(op["time_ms"] is not None for op in document["ops"])


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_left_untouched(name: str) -> None:
    make, shape = MODELS[name]
    model = make().train()
    before = copy.deepcopy(model.state_dict())
    threads, kept = torch.get_num_threads(), dict(model.__dict__)
    torch_operator_times(model, {"input": np.ones(shape, np.float32)}, threads=1, repeats=2)
    assert model.training
    assert model.__dict__ == kept
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.get_num_threads() == threads


def test_rows_and_what_is_left_make_up_the_whole_call() -> None:
    found = torch_operator_times(Counting(), {"input": np.ones((3, 4), np.float32)}, repeats=3)
    assert found.n == 3
    assert found.operators_ms == pytest.approx(sum(row["time_ms"] for row in found.rows))
    assert found.operators_ms + found.unattributed_ms == pytest.approx(found.end_to_end_ms)
    assert min(row["time_ms"] for row in found.rows) >= 0 < found.end_to_end_ms


def test_named_inputs_go_by_name() -> None:
    class Two(nn.Module):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return left - right

    feeds = {"right": np.ones(2, np.float32), "left": np.zeros(2, np.float32)}
    assert [row["op"] for row in torch_operator_times(Two(), feeds, repeats=1).rows] == ["aten::sub"]


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("Conv", "compute"), ("QLinearConv", "compute"), ("FusedMatMul", "compute"), ("MatMulNBits", "compute"),
        ("Transpose", "movement"), ("ReorderInput", "movement"), ("Concat", "movement"), ("Gather", "movement"),
        ("QuantizeLinear", "conversion"), ("DequantizeLinear", "conversion"), ("Cast", "conversion"),
        ("QLinearAdd", "elementwise"), ("BiasGelu", "elementwise"), ("Softmax", "other"), ("NewOp", "other"),
    ],
)  # fmt: skip
def test_a_kernel_is_sorted_by_what_it_does(op: str, kind: str) -> None:
    assert kind_of(op) == kind


def test_the_sentence_names_the_largest_and_calls_movement_out() -> None:
    times = {"Conv": 6.0, "Transpose": 2.0, "Cast": 1.5, "Relu": 0.5}
    found = sorted_operators([{"name": op.lower(), "op": op, "time_ms": ms} for op, ms in times.items()])
    assert found["sentence"].startswith("time is in Conv (60 %), Transpose (20 %)")
    assert "20 % moves data" in found["sentence"]
    assert "15 % converts" in found["sentence"]
    assert list(found["kinds"]) == ["compute", "movement", "conversion", "elementwise"]
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)
    assert found["total_ms"] == 10


def test_nothing_timed_says_so() -> None:
    assert sorted_operators([])["sentence"] == "no kernel was timed"
