"""Dynamic int8: products with weights in integers, convolutions and everything that stays in float as before."""

import pytest
import torch
from torch import nn

from compress.analyze.advice import advise
from compress.analyze.methods import Asked
from compress.analyze.predict import predict
from compress.analyze.quantized import with_dynamic_integers, with_weights
from compress.analyze.trace import trace
from compress.analyze.verdict import verdict
from compress.device.devices import device_named
from compress.measure.stats import Interval

LINEARS = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))
CONVS = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
T4 = device_named("t4")


def rows(model, x, probes=None):
    table = trace(model, (x,))
    found = verdict(table, T4)
    predictions = predict(table, T4, found, asked=Asked(probes=probes or {}))
    return {one.name: one for one in predictions}, advise(found, predictions)


def test_only_products_with_weights_change_their_type():
    bits = with_dynamic_integers(
        trace(nn.Sequential(CONVS, nn.Flatten(), nn.Linear(128, 4)), (torch.ones(1, 8, 8, 8),))
    )
    assert bits.dtypes.count("int8") == bits.boundaries == 1


def test_what_a_product_reads_is_written_and_read_once_more_as_integers():
    table = trace(LINEARS, (torch.ones(32, 512),))
    bits = with_dynamic_integers(table)
    assert sorted(bits.extra_bytes.values()) == [2 * 32 * 512] * 2
    assert bits.table.weight_bytes == with_weights(table, 1.0, convs=False).table.weight_bytes


@pytest.mark.parametrize("batch", [1, 64, 4096])
def test_it_gives_no_more_than_integers_everywhere_could(batch):
    found, _ = rows(LINEARS, torch.ones(batch, 512))
    dynamic, static = found["int8 dynamic"], found["int8 W8A8"]
    assert dynamic.hard <= static.hard * (1 + 1e-9)
    assert dynamic.expected <= dynamic.hard
    assert dynamic.expected > 1.2


def test_it_does_nothing_for_convolutions():
    found, _ = rows(CONVS, torch.ones(1, 8, 32, 32))
    assert found["int8 dynamic"].expected == pytest.approx(1.0)
    assert "0 matrix products" in found["int8 dynamic"].why


def test_advice_follows_what_was_probed_and_not_what_was_expected():
    x = torch.ones(1, 512)
    before, told = rows(LINEARS, x)
    first = told[0].remedy
    other = {"batch": "weight-only", "weight-only": "batch"}[first]
    names = [name for name in before if name.startswith("batch" if first == "batch" else "int4")]
    slow = {name: Interval(value=0.5, low=0.4, high=0.6, n=9) for name in names}
    _, told = rows(LINEARS, x, slow)
    # A lever that was seen to slow the model down is no advice while another one remains.
    assert [one.remedy for one in told if one.remedy] == [other]
    faster = {name: Interval(value=9.5, low=9.4, high=9.6, n=9) for name in names}
    _, told = rows(LINEARS, x, faster)
    assert told[0].remedy == first
    assert "9.5x [9.4, 9.6] measured (n=9)" in told[0].sentence
