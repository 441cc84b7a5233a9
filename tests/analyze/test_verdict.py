"""Constructed models get the class they were constructed for. Times and ceilings are made up."""

import made
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from compress.analyze import count
from compress.analyze.classes import CLASSES, Measured, classify
from compress.analyze.predict import predict
from compress.analyze.verdict import verdict
from compress.device.devices import device_named
from compress.errors import InputError

TINY, WIDE, HEAVY, DECODE = (count(*build()) for build in (made.tiny, made.wide, made.heavy, made.decode))
CHAIN = count(made.Chain(), torch.rand(8, 256, 512))
SHUFFLE = count(made.Shuffle(), torch.rand(4, 32, 56, 56))
ALL = {"tiny": TINY, "wide": WIDE, "heavy": HEAVY, "decode": DECODE, "chain": CHAIN, "shuffle": SHUFFLE}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (TINY, "overhead"),
        (WIDE, "weight-bandwidth"),
        (HEAVY, "compute"),
        (DECODE, "kv-bandwidth"),
        (CHAIN, "activation-bandwidth"),
        (SHUFFLE, "movement"),
    ],
    ids=["tiny", "wide", "heavy", "decode", "chain", "shuffle"],
)
def test_a_model_without_times_is_judged_by_its_bounds(table, expected):
    found = verdict(table, made.machine())
    assert found.class_ == expected
    assert found.confidence == "counted only"
    assert not found.errors
    assert f"{found.share:.0%}" in found.sentence


def test_a_model_that_starts_ops_most_of_the_time_is_overhead_and_flat_in_its_batch():
    whole = sum(made.DISPATCH_NS[name] for name in ("linear", "layer_norm")) * 60 / 1e6
    found = verdict(TINY, made.machine(), measured=made.measured(1.5 * whole, _scaled(TINY, 1.5)), elasticity=0.02)
    assert (found.class_, found.confidence) == ("overhead", "measured on this machine")
    assert found.share == pytest.approx(1.0)
    assert any("1.02 times as long" in sentence for sentence in found.evidence)


@pytest.mark.parametrize("factor", [1.0, 1.9, 2.1, 2.9])
def test_ops_that_have_nothing_but_their_start_to_pay_are_overhead_however_slowly_they_start(factor):
    whole = sum(made.DISPATCH_NS[name] for name in ("linear", "layer_norm")) * 60 / 1e6
    times = made.measured(factor * whole, _scaled(TINY, factor))
    found = verdict(TINY, made.machine(), measured=times)
    assert (found.class_, found.share) == ("overhead", pytest.approx(1.0))


def test_slow_starts_are_overhead_where_time_is_seen_not_to_grow_with_the_batch():
    whole = sum(made.DISPATCH_NS[name] for name in ("linear", "layer_norm")) * 60 / 1e6
    times = made.measured(8 * whole, _scaled(TINY, 8))
    assert verdict(TINY, made.machine(), measured=times).class_ == "kernel-limited"
    assert verdict(TINY, made.machine(), measured=times, elasticity=0.02).class_ == "overhead"
    assert verdict(TINY, made.machine(), measured=times, elasticity=0.9).class_ == "kernel-limited"


def test_a_flat_profile_that_grows_with_the_batch_is_not_overhead():
    whole = 0.022 * 60
    found = verdict(TINY, made.machine(), measured=made.measured(1.5 * whole, _scaled(TINY, 1.5)), elasticity=0.9)
    assert found.class_ != "overhead"
    assert found.shares.share["overhead"] == 0
    assert any("Not overhead" in sentence and "1.90" in sentence for sentence in found.evidence)


def test_kernels_five_times_above_their_bounds_are_kernel_limited():
    bounds = classify(HEAVY, made.machine()).rows
    rows = made.profile(HEAVY, lambda op: 5 * bounds[op.id].bound.at("U"))
    found = verdict(HEAVY, made.machine(), measured=made.measured(sum(row["time_ms"] for row in rows), rows))
    assert (found.class_, found.share) == ("kernel-limited", pytest.approx(1.0))
    assert any("5 times what their work" in sentence for sentence in found.evidence)
    twice = made.profile(HEAVY, lambda op: 2 * bounds[op.id].bound.at("U"))
    calm = verdict(HEAVY, made.machine(), measured=made.measured(sum(row["time_ms"] for row in twice), twice))
    assert calm.class_ == "compute"


def test_waiting_for_the_loader_beats_every_class_of_the_model():
    found = verdict(HEAVY, made.machine(), loader_wait_share=0.45)
    assert (found.class_, found.share, found.runner_up) == ("data-pipeline", pytest.approx(0.45), "compute")
    assert found.mixed
    assert sum(found.shares.share.values()) == pytest.approx(1.0)
    short = verdict(HEAVY, made.machine(), loader_wait_share=0.2)
    assert short.class_ == "compute"
    assert short.shares.share["data-pipeline"] == pytest.approx(0.2)


def test_copies_that_take_a_quarter_lead_unless_something_takes_half():
    moves = [op.id for op in SHUFFLE.ops if op.kind == "move"]
    machine = made.machine(starts=0)
    bounds = {row.index: row.bound.at("U") for row in classify(SHUFFLE, machine).rows}
    # The other time is in two classes: convolutions far from their bounds and sums not quite as far.
    each = {op.id: 3.05 * bounds[op.id] for op in SHUFFLE.ops if op.kind == "contraction"}
    each |= {op.id: 2.95 * bounds[op.id] for op in SHUFFLE.ops if op.kind == "elementwise"}

    def judged(share):
        copies = sum(each.values()) * share / (1 - share)
        rows = made.profile(SHUFFLE, lambda op: copies / len(moves) if op.id in moves else each.get(op.id))
        return verdict(SHUFFLE, machine, measured=made.measured(sum(row["time_ms"] for row in rows), rows))

    assert judged(0.26).class_ == "movement"
    assert judged(0.26).mixed
    assert judged(0.05).class_ == "kernel-limited"


def test_time_that_eager_torch_spends_between_ops_is_overhead_which_a_graph_does_away_with():
    rows = made.profile(TINY, lambda op: 0.02)
    own = sum(row["time_ms"] for row in rows)
    found = verdict(TINY, made.machine(), measured=made.measured(4 * own, rows), elasticity=0.05)
    assert found.shares.host_ms == pytest.approx(3 * own)
    assert (found.class_, found.share) == ("overhead", pytest.approx(1.0))
    assert found.shares.unattributed_ms == pytest.approx(0.0)
    gains = {one.name: one.expected for one in predict(TINY, made.machine(), found)}
    assert gains["graph mode"] > 4
    assert gains["batch 8"] > 6


def test_time_that_belongs_to_no_op_is_a_row_of_its_own_and_never_the_verdict():
    rows = made.profile(WIDE, lambda op: 2.0 if op.kind == "contraction" else 0.0)
    found = verdict(WIDE, made.machine(), measured=made.measured(20.0, rows, runtime="onnxruntime"))
    assert found.shares.unattributed_ms == pytest.approx(12.0)
    assert found.shares.share["unattributed"] == pytest.approx(0.6)
    assert (found.class_, found.mixed) == ("weight-bandwidth", True)
    assert any("12 ms (60%)" in sentence for sentence in found.evidence)
    stranger = [*rows, {"module": "nowhere", "time_ms": 5.0}]
    assert verdict(
        WIDE, made.machine(), measured=made.measured(20.0, stranger, runtime="onnxruntime")
    ).shares.unattributed_ms == pytest.approx(12.0)


def test_copies_that_the_runtime_inserted_are_movement_and_stay_whatever_is_compressed():
    rows = made.profile(WIDE, lambda op: 2.0 if op.kind == "contraction" else 0.0)
    own = sum(row["time_ms"] for row in rows)
    inserted = [{"name": "reorder", "op": "ReorderInput", "time_ms": own}]
    found = verdict(WIDE, made.machine(), measured=made.measured(2 * own, [*rows, *inserted]))
    assert found.shares.share["movement"] == pytest.approx(0.5)
    assert found.shares.share["unattributed"] == pytest.approx(0.0)
    assert sum(found.shares.share.values()) == pytest.approx(1.0)
    assert all(one.expected <= 2.0 + 1e-9 for one in predict(WIDE, made.machine(), found))


def test_a_time_below_its_bound_is_an_error_that_names_the_number():
    bound = verdict(WIDE, made.machine()).bound
    found = verdict(WIDE, made.machine(), measured=made.measured(0.9 * bound.hard_ms))
    (error,) = found.errors
    assert (error.limit, error.wrong) == ("bandwidth", "ceiling")
    assert "below its bandwidth bound" in error.sentence
    assert "too low" in error.sentence
    assert "1.11 times too fast" in error.sentence
    assert error.measured_ms == pytest.approx(0.9 * bound.hard_ms)
    assert not verdict(WIDE, made.machine(), measured=made.measured(0.99 * bound.hard_ms)).errors


def test_ops_that_start_faster_than_the_machine_can_blame_the_cost_of_starting():
    bound = verdict(TINY, made.machine()).bound
    (error,) = verdict(TINY, made.machine(), measured=made.measured(0.5 * bound.hard_ms)).errors
    assert (error.limit, error.wrong) == ("dispatch", "ceiling")
    assert "cost of starting an op of made up" in error.sentence
    assert "too high" in error.sentence


def test_an_op_of_a_profile_below_its_own_bound_is_named():
    bounds = {row.index: row.bound for row in classify(WIDE, made.machine()).rows}
    rows = made.profile(WIDE, lambda op: bounds[op.id].hard_ms * (0.5 if op.id == 2 else 1.5) + 0.01)
    found = verdict(WIDE, made.machine(), measured=made.measured(sum(row["time_ms"] for row in rows), rows))
    assert [error.place for error in found.errors] == ["op 2 2"]
    assert found.errors[0].limit == "bandwidth"


def test_a_profile_that_leaves_out_the_start_of_an_op_is_no_error():
    rows = made.profile(TINY, lambda op: 0.001)
    assert not verdict(TINY, made.machine(), measured=made.measured(2.0, rows)).errors


def test_a_convolution_slightly_above_the_roof_blames_the_direct_count():
    bound = verdict(HEAVY, made.machine()).bound
    error = verdict(HEAVY, made.machine(), measured=made.measured(bound.hard_ms / 2)).errors[0]
    assert (error.limit, error.wrong) == ("arithmetic", "count")
    error = verdict(HEAVY, made.machine(), measured=made.measured(bound.hard_ms / 4)).errors[0]
    assert error.wrong == "ceiling"


def test_a_device_does_not_beat_its_sheet_so_the_count_is_wrong():
    sheet = device_named("h100-sxm")
    bound = verdict(WIDE, sheet).bound
    assert verdict(WIDE, sheet, measured=made.measured(bound.hard_ms / 2)).errors[0].wrong == "count"


@pytest.mark.parametrize(
    ("ceilings", "times", "expected"),
    [
        (made.machine(), made.measured(40.0), "measured on this machine"),
        (made.machine(), None, "counted only"),
        (made.machine(contaminated=True), made.measured(40.0), "ceilings contaminated"),
        (device_named("l4"), None, "datasheet, not measured"),
    ],
)
def test_the_confidence_is_that_of_the_weakest_number(ceilings, times, expected):
    assert verdict(WIDE, ceilings, measured=times).confidence == expected


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(ALL)),
    factors=st.lists(st.floats(0, 20), min_size=3, max_size=3),
    extra=st.floats(0, 5),
    wait=st.floats(0, 0.9),
)
def test_shares_sum_to_one_whatever_was_measured(name, factors, extra, wait):
    table = ALL[name]
    rows = made.profile(table, lambda op: factors[op.id % 3] if op.kind != "view" else None)
    whole = max(0.01, extra * sum(factors))
    shares = classify(table, made.machine(), measured=made.measured(whole, rows), loader_wait_share=wait)
    assert sum(shares.share.values()) == pytest.approx(1.0)
    assert set(shares.share) == set(CLASSES)
    beside = shares.unattributed_ms + shares.host_ms + shares.wait_ms
    assert sum(row.time_ms for row in shares.rows) + beside == pytest.approx(shares.total_ms)


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_a_machine_k_times_slower_in_everything_has_the_same_shares(table):
    def shares(factor):
        slow = made.machine(fp32=70e9 / factor, int8=None, dram=12e9 / factor, starts=factor)
        rows = made.profile(table, lambda op: factor * (0.051 + 0.01 * (op.id % 7)))
        whole = sum(row["time_ms"] for row in rows) * 1.1
        return verdict(table, slow, measured=made.measured(whole, rows))

    one, four = shares(1.0), shares(4.0)
    assert one.shares.share == pytest.approx(four.shares.share)
    assert one.class_ == four.class_


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
@pytest.mark.parametrize("better", [{"fp32": 140e9}, {"dram": 24e9}, {"starts": 0.5}], ids=str)
def test_no_bound_grows_on_a_faster_machine(table, better):
    slow, fast = verdict(table, made.machine()), verdict(table, made.machine(**better))
    assert fast.bound.hard_ms <= slow.bound.hard_ms
    assert fast.bound.ms <= slow.bound.ms
    for before, after in zip(slow.shares.rows, fast.shares.rows, strict=True):
        assert after.bound.at("U") <= before.bound.at("U")


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_bounds_are_ordered_by_the_bytes_that_move(table):
    bound = verdict(table, made.machine()).bound
    assert bound.hard_ms <= bound.at("C") <= bound.at("G") <= bound.at("U")
    assert bound.interval_ms == (bound.at("C"), bound.at("U"))


def test_a_model_that_fits_into_half_of_the_cache_is_held_against_the_cache():
    table = count(nn.Linear(128, 128, bias=False), torch.rand(1, 128))
    nbytes = 4 * (128 * 128 + 256)
    near = verdict(table, made.machine(cache=2 * nbytes, starts=0)).bound
    far = verdict(table, made.machine(cache=2 * nbytes - 2, starts=0)).bound
    none = verdict(table, made.machine(cache=None, starts=0)).bound
    assert near.memory_ms["C"] == pytest.approx(nbytes / 48e9 * 1e3)
    assert far.memory_ms["C"] == none.hard_memory_ms == pytest.approx(nbytes / 12e9 * 1e3)
    # Between half and the whole of it, the cache may still hold everything, so the hard bound keeps its speed.
    assert far.hard_memory_ms == near.hard_memory_ms


def test_reading_more_than_the_cache_holds_is_bound_by_what_cannot_stay_in_it():
    bound = verdict(WIDE, made.machine(cache=16 << 20)).bound
    nbytes = bound.memory_ms["C"] * 12e9 / 1e3
    assert bound.hard_memory_ms == pytest.approx((nbytes - (16 << 20)) / 12e9 * 1e3)


def test_impossible_times_are_refused():
    with pytest.raises(InputError, match="loader_wait_share"):
        verdict(WIDE, made.machine(), loader_wait_share=1.0)
    with pytest.raises(InputError, match="no time"):
        Measured(runtime="torch", end_to_end_ms=made.Span(value=0.0, low=0.0, high=0.0))
    with pytest.raises(InputError, match="below 0"):
        made.measured(1.0, [{"op": "x", "time_ms": -1.0}])
    with pytest.raises(InputError, match="nothing to judge"):
        verdict(count(nn.Identity(), torch.rand(1)), made.machine())


def _scaled(table, factor):
    """A profile in which every op takes `factor` times its cost of starting."""
    floors = {
        op.id: row.bound.floor_ms for op, row in zip(table.ops, classify(table, made.machine()).rows, strict=True)
    }
    return made.profile(table, lambda op: factor * floors[op.id])
