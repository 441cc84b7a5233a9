"""Predictions of methods, on constructed models with made-up times."""

from dataclasses import replace

import made
import nets
import nets_text
import pytest
import torch
from torch import nn

from compress.analyze import count
from compress.analyze.advice import LEVERS, LITTLE, NOT, advise
from compress.analyze.bounds import model_bound
from compress.analyze.classes import CLASSES, classify
from compress.analyze.methods import Asked, crossover_rows, methods
from compress.analyze.narrow import narrowed
from compress.analyze.predict import predict
from compress.analyze.quantized import INT4_BYTES, all_integers, with_integers, with_weights
from compress.analyze.traffic import traffic
from compress.analyze.verdict import verdict
from compress.device.ceilings import Ceilings, Level, Rate
from compress.device.devices import device_named
from compress.errors import InputError

TINY, WIDE, HEAVY, DECODE = (count(*build()) for build in (made.tiny, made.wide, made.heavy, made.decode))
CHAIN = count(made.Chain(), torch.rand(8, 256, 512))
SHUFFLE = count(made.Shuffle(), torch.rand(4, 32, 56, 56))
ALL = {"tiny": TINY, "wide": WIDE, "heavy": HEAVY, "decode": DECODE, "chain": CHAIN, "shuffle": SHUFFLE}
# Bytes only: nothing to start, nothing to cache.
BYTES_ONLY = made.machine(cache=None, starts=0)


def predicted(table, ceilings=None, *, measured=None, asked=None):
    ceilings = ceilings or made.machine()
    found = verdict(table, ceilings, measured=measured)
    return {row.name: row for row in predict(table, ceilings, found, asked=asked)}


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_every_ceiling_is_at_least_one_when_nothing_lies_below_its_bound(table):
    for measured in (None, made.measured(1.3 * classify(table, made.machine()).total_ms)):
        for row in predicted(table, measured=measured).values():
            assert row.hard is not None
            assert row.hard >= 1.0 - 1e-9, row
            assert row.expected >= 1.0 - 1e-9, row
            assert row.probe is None


def test_fewer_bits_do_nothing_for_a_model_that_starts_ops():
    rows = predicted(TINY)
    for name in ("int8 W8A8", "int8 weight-only", "int4 weight-only g128", "prune 50%", "half-width student"):
        assert rows[name].expected == pytest.approx(1.0)
        assert rows[name].helps == "warn"
    assert rows["half-depth student"].expected == pytest.approx(2.0)
    assert rows["batch 8"].expected == pytest.approx(8.0)
    # A graph starts its kernels too, only more cheaply: 22 us a layer in eager torch against twice 1.5 us.
    assert rows["graph mode"].expected == pytest.approx(22 / 3, rel=0.05)
    assert rows["graph mode"].hard > 10


def test_pruning_does_not_help_where_the_time_is_in_transposes_and_copies():
    bounds = {row.index: row.bound.at("U") for row in classify(SHUFFLE, made.machine()).rows}
    rows = made.profile(SHUFFLE, lambda op: (4 if op.kind == "move" else 1.2) * bounds[op.id])
    measured = made.measured(sum(row["time_ms"] for row in rows), rows)
    found = verdict(SHUFFLE, made.machine(), measured=measured)
    assert found.class_ == "movement"
    pruned = predicted(SHUFFLE, measured=measured)["prune 50%"]
    assert narrowed(SHUFFLE, ratio=0.5, round_to=8).macs == SHUFFLE.macs / 2
    assert pruned.expected < 1.2
    assert pruned.hard > 2
    told = advise(found, tuple(predicted(SHUFFLE, measured=measured).values()))
    assert any(
        one.sentence.startswith("do not compress") and "pruning leaves the copies" in one.sentence for one in told
    )


def test_folding_the_copies_gives_what_their_share_of_the_time_says():
    bounds = {row.index: row.bound.at("U") for row in classify(SHUFFLE, made.machine()).rows}
    rows = made.profile(SHUFFLE, lambda op: (4 if op.kind == "move" else 1.2) * bounds[op.id])
    inserted = [{"name": "reorder", "op": "ReorderOutput", "time_ms": 0.5}]
    measured = made.measured(sum(row["time_ms"] for row in [*rows, *inserted]), [*rows, *inserted])
    found = verdict(SHUFFLE, made.machine(), measured=measured)
    folded = predicted(SHUFFLE, measured=measured)["copies folded"]
    assert folded.expected == pytest.approx(1 / (1 - found.shares.share["movement"]))
    assert folded.hard >= folded.expected
    told = advise(found, tuple(predicted(SHUFFLE, measured=measured).values()))
    assert any("layout" in one.sentence and f"{folded.expected:.3g}x expected" in one.sentence for one in told)


def test_copies_of_hidden_channels_keep_their_expected_time_and_lower_the_hard_bound():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 256), nn.Linear(256, 8)

        def forward(self, x):
            y = self.up(x)
            for _ in range(4):
                y = y.transpose(0, 1).contiguous()
            return self.down(y)

    table = count(Turned(), torch.rand(2048, 2048, 8)[:64, :64])
    found = verdict(table, BYTES_ONLY)
    copies = found.shares.share["movement"]
    assert found.class_ == "movement"
    pruned = predicted(table, BYTES_ONLY)["prune 50%"]
    assert 1.0 < pruned.expected < 1 / copies
    assert pruned.hard > 2


def test_nothing_is_expected_to_take_less_than_starting_its_ops():
    table = count(nn.Linear(640, 640, bias=False), torch.rand(1, 640))
    # Far below its DRAM bound, for it came from a cache: an eighth of this time would not even start the op.
    rows = [{"op": "aten::linear", "time_ms": 0.03}]
    row = predicted(table, made.machine(cache=None), measured=made.measured(0.03, rows))["int4 weight-only g128"]
    assert row.expected == pytest.approx(0.03 / (made.DISPATCH_NS["linear"] / 1e6))


def test_weights_in_fewer_bits_give_what_their_bytes_say_when_only_bytes_count():
    rows = predicted(WIDE, BYTES_ONLY)
    moved = traffic(WIDE).total["C"]
    weights, biases = 4 * 4 * 2048 * 2048, 4 * 4 * 2048
    others = sum(moved.values()) - weights - biases
    assert moved["weight"] == weights + biases
    for name, nbytes in (("int8 weight-only", 1.0), ("int4 weight-only g128", INT4_BYTES)):
        share = nbytes / 4
        # The hard ceiling shrinks biases too, the expected one only matrices; activations are what they were.
        now = classify(WIDE, BYTES_ONLY).total_ms
        least = ((weights + biases) * share + others) / 12e9 * 1e3
        assert rows[name].hard == pytest.approx(now / least, rel=1e-6)
        assert rows[name].expected == pytest.approx(1 / share, rel=0.02)
        assert rows[name].expected < rows[name].hard


def test_an_expectation_stays_below_the_hard_ceiling_of_kernels_at_their_roof():
    table = count(nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.rand(1, 64, 56, 56))
    # Convolutions gain 160 / 70, but products in fp32 are fast enough to leave only 160 / 80 to the roofs.
    rates = {
        "fp32": Rate(gemm=made.figure(80e9), conv=made.figure(70e9)),
        "int8": Rate(gemm=made.figure(150e9), conv=made.figure(160e9)),
    }
    device = replace(made.machine(), flop_per_s=rates)
    rows = predicted(table, device, measured=made.measured(2 * table.macs / 80e9 * 1e3))
    assert rows["int8 W8A8"].hard == pytest.approx(2.0)
    assert 1.9 < rows["int8 W8A8"].expected <= rows["int8 W8A8"].hard


def test_kernels_that_multiply_in_integers_keep_the_bound_of_weight_only_methods_in_onnx_runtime():
    table = count(nn.Linear(512, 512, bias=False), torch.rand(4096, 512))
    bounds = {}
    for runtime in ("torch", "onnxruntime"):
        # On the fp32 roof exactly: nothing is left to gain without integer arithmetic.
        now = made.measured(2 * table.macs / 70e9 * 1e3, runtime=runtime)
        bounds[runtime] = predicted(table, made.machine(fp32=70e9, int8=140e9), measured=now)["int4 weight-only g128"]
    assert bounds["torch"].hard == pytest.approx(1.0)
    assert bounds["onnxruntime"].hard == pytest.approx(2.0)
    assert bounds["onnxruntime"].expected < 1.1


def test_weight_only_gains_end_where_arithmetic_takes_over():
    h100 = device_named("h100-sxm")
    assert crossover_rows(h100, "fp16", 2.0) == pytest.approx(295, abs=0.5)
    assert crossover_rows(h100, "fp16", INT4_BYTES) == pytest.approx(76.7, abs=0.5)
    model = nn.Linear(4096, 4096, bias=False, dtype=torch.float16, device="meta")
    gains = []
    for rows in (1, 64, 256, 1024):
        table = count(model, torch.empty(rows, 4096, dtype=torch.float16, device="meta"))
        gains.append(predicted(table, h100)["int4 weight-only g128"].hard)
    assert gains == sorted(gains, reverse=True)
    assert gains[0] == pytest.approx(2 / INT4_BYTES, rel=0.01)
    assert gains[-1] == pytest.approx(1.0)


def test_int8_on_a_gpu_is_worth_twice_sixteen_bits_not_four_times():
    h100 = device_named("h100-sxm")
    model = nn.Linear(8192, 8192, bias=False, dtype=torch.bfloat16, device="meta")
    table = count(model, torch.empty(65536, 8192, dtype=torch.bfloat16, device="meta"))
    row = predicted(table, h100)["int8 W8A8"]
    assert row.hard == pytest.approx(2.0, rel=0.001)
    assert "2 times as fast as bf16" in row.why


def test_arithmetic_gains_what_the_measured_rates_say():
    row = predicted(HEAVY, made.machine(int8=1.9 * 70e9))["int8 W8A8"]
    assert row.hard == pytest.approx(1.9, rel=0.01)
    assert row.expected == pytest.approx(1.9, rel=0.01)
    none = predicted(HEAVY, made.machine(int8=None))["int8 W8A8"]
    assert "No int8 arithmetic" in none.why
    assert none.expected == pytest.approx(1.0, rel=0.01)
    slow = predicted(HEAVY, made.machine(int8=7e9))["int8 W8A8"]
    assert (slow.helps, slow.hard) == ("warn", pytest.approx(1.0, rel=0.01))
    assert "slower than float" in slow.why


def test_activations_are_integers_only_between_ops_that_are():
    table = count(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Softmax(-1)), torch.rand(32, 64))
    bits = with_integers(table)
    # In at the first product, out at the second; between them nothing is converted.
    assert bits.boundaries == 2
    assert sum(bits.extra_bytes.values()) == 2 * 2 * 32 * 64
    assert bits.dtypes == ("int8", "fp32", "int8", "fp32")
    before, after = traffic(table).total, traffic(bits.table).total
    assert before["G"]["act"] - after["G"]["act"] == 2 * 3 * 32 * 64
    assert after["C"]["io"] == before["C"]["io"]
    assert all_integers(table).table.weight_bytes * 4 == table.weight_bytes


def test_kv_in_eight_bits_helps_the_cache_and_weights_do_not():
    rows = predicted(DECODE, BYTES_ONLY)
    assert rows["KV int8"].expected > 3
    assert rows["KV int8"].helps == "go"
    assert rows["int4 weight-only g128"].expected < 1.01
    assert "no cache" in predicted(WIDE)["KV int8"].why


def test_pruned_bytes_and_work_equal_those_of_the_narrow_model_built_for_real():
    def build(hidden):
        body = (nn.Conv2d(16, hidden, 3, padding=1), nn.BatchNorm2d(hidden), nn.ReLU(), nn.Conv2d(hidden, hidden, 3))
        return nn.Sequential(nn.Conv2d(3, 16, 1), *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(hidden, 10))

    x = torch.rand(2, 3, 16, 16)
    guess = narrowed(count(build(64), x), ratio=0.5, round_to=16)
    model = build(32)
    # Sixteen channels are one tile, so the first convolution keeps its own.
    real = count(model, x)
    assert guess.macs == real.macs
    assert guess.elementwise_flops == real.elementwise_flops
    for level in "CGU":
        assert traffic(guess).bytes_of(level) == pytest.approx(traffic(real).bytes_of(level), abs=64)


def test_a_depthwise_convolution_loses_work_once_and_a_plain_one_twice():
    def build(width):
        depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        return nn.Sequential(nn.Conv2d(3, width, 1), depthwise, nn.Conv2d(width, width, 1), nn.Conv2d(width, 3, 1))

    x = torch.rand(1, 3, 8, 8)
    guess, real = narrowed(count(build(64), x), ratio=0.5, round_to=8), count(build(32), x)
    assert guess.macs == real.macs
    assert guess.weight_bytes == real.weight_bytes


def test_a_transformer_of_half_the_width_is_counted_like_one_that_was_built():
    guess, real = (narrowed(_vit(128), ratio=0.5, round_to=8), _vit(64))
    assert guess.macs == real.macs
    assert guess.weight_bytes == real.weight_bytes
    for level in "CGU":
        assert traffic(guess).bytes_of(level) == traffic(real).bytes_of(level)


def test_a_model_that_gives_out_its_hidden_states_keeps_their_width():
    ids = torch.zeros(1, 16, dtype=torch.long)
    table = count(nets_text.Bert(vocab=1000, width=128, depth=2, heads=4, types=False).build(), ids)
    half = narrowed(table, ratio=0.5, round_to=8)
    # Queries, keys, values and the inner layer shrink; what they read and write does not.
    assert 0.4 < half.macs / table.macs < 0.6


def _vit(width):
    return count(nets.ViT(width=width, depth=2, heads=width // 32, size=64), torch.rand(1, 3, 64, 64))


def test_channels_are_kept_in_whole_tiles_and_never_grow():
    model = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 4))
    table = count(model, torch.rand(1, 8))
    # 20 -> 8 (of 10, to one tile); 6 is less than a tile and stays.
    assert narrowed(table, ratio=0.5, round_to=8).macs == 8 * 8 + 8 * 6 + 6 * 4
    assert narrowed(table, ratio=0.5, round_to=1).macs == 8 * 10 + 10 * 3 + 3 * 4
    ends = count(nn.Linear(8, 20), torch.rand(1, 8))
    assert narrowed(ends, ratio=0.5, round_to=1) == ends


def test_sums_with_the_input_keep_their_channels():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return torch.relu(x + self.down(torch.relu(self.up(x)))) * 2

    half = narrowed(count(Residual(), torch.rand(1, 16)), ratio=0.5, round_to=8)
    assert half.macs == 2 * 16 * 32


def test_resnet_keeps_about_a_quarter_of_its_work_at_half_its_channels():
    table = count(nets.resnet18().to("meta"), torch.empty(1, 3, 224, 224, device="meta"))
    assert 0.25 < narrowed(table, ratio=0.5, round_to=8).macs / table.macs < 0.28


def test_a_target_beyond_arithmetic_stops_and_only_when_the_time_was_measured():
    bound = verdict(HEAVY, made.machine()).bound
    asked = Asked(target_speedup=3.3)
    rows = predicted(HEAVY, measured=made.measured(1.5 * bound.hard_ms), asked=asked)
    assert rows["int8 W8A8"].hard == pytest.approx(3.0, rel=0.01)
    assert rows["int8 W8A8"].helps == "stop"
    assert "3.3x is wanted" in rows["int8 W8A8"].why
    assert rows["prune 50%"].hard > 3.3
    assert rows["prune 50%"].helps != "stop"
    for doubted in (
        predicted(HEAVY, asked=asked),
        predicted(HEAVY, measured=made.measured(0.5 * bound.hard_ms), asked=asked),
        predicted(HEAVY, made.machine(contaminated=True), measured=made.measured(1.5 * bound.hard_ms), asked=asked),
    ):
        assert doubted["int8 W8A8"].helps == "warn"


def test_the_slow_end_of_the_interval_decides_whether_to_stop():
    bound = verdict(HEAVY, made.machine()).bound
    asked = Asked(target_speedup=3.1)
    tight = predicted(HEAVY, measured=made.measured(1.5 * bound.hard_ms, spread=0.01), asked=asked)["int8 W8A8"]
    loose = predicted(HEAVY, measured=made.measured(1.5 * bound.hard_ms, spread=0.10), asked=asked)["int8 W8A8"]
    assert (tight.helps, loose.helps) == ("stop", "warn")


def test_a_probe_is_carried_and_decides_over_the_expectation():
    good = predicted(WIDE, asked=Asked(probes={"int8 W8A8": made.span(1.8)}))["int8 W8A8"]
    bad = predicted(WIDE, asked=Asked(probes={"int8 W8A8": made.span(0.65)}))["int8 W8A8"]
    assert (good.helps, bad.helps) == ("go", "warn")
    assert bad.probe.value == 0.65
    assert "Probed: 0.65x" in bad.why


def test_a_step_is_never_shorter_than_its_wait_for_data():
    found = verdict(HEAVY, made.machine(), loader_wait_share=0.5)
    for row in predict(HEAVY, made.machine(), found):
        assert row.hard <= 2.0 + 1e-9
        assert row.expected <= 2.0


def test_time_without_a_profile_changes_like_the_ops_and_beside_one_it_stays():
    machine = made.machine(starts=0)
    bare = predicted(HEAVY, machine, measured=made.measured(200.0))["int8 W8A8"]
    rows = made.profile(HEAVY, lambda op: 20.0)
    beside = predicted(HEAVY, machine, measured=made.measured(200.0, rows))["int8 W8A8"]
    assert bare.expected == pytest.approx(2.0, rel=0.01)
    assert beside.expected == pytest.approx(200 / (140 + 30), rel=0.01)


def test_no_prediction_is_worse_on_a_machine_with_faster_integers():
    slow, fast = (predicted(HEAVY, made.machine(int8=rate))["int8 W8A8"] for rate in (100e9, 200e9))
    assert fast.hard > slow.hard
    assert fast.expected > slow.expected


def test_achievable_shares_of_a_sheet_change_no_hard_ceiling():
    sheet = device_named("mi300x")
    full = Ceilings(
        name=sheet.name, source=sheet.source, confidence=sheet.confidence, threads=None,
        flop_per_s=sheet.flop_per_s, levels=sheet.levels,
    )  # fmt: skip
    for name, row in predicted(HEAVY, sheet).items():
        assert row.hard == predicted(HEAVY, full)[name].hard


def test_fewer_bytes_never_raise_the_bound_and_more_weights_shrink_it_more():
    before = model_bound(classify(WIDE, BYTES_ONLY).costs, BYTES_ONLY).hard_ms
    for nbytes in (2.0, 1.0, 0.5):
        subject = classify(with_weights(WIDE, nbytes).table, BYTES_ONLY)
        after = model_bound(subject.costs, BYTES_ONLY).hard_ms
        assert after < before
        before = after


def test_methods_have_names_of_their_own_and_impossible_requests_are_refused():
    names = [name for name, _ in methods(Asked(prune_ratios=(0.3, 0.5, 0.7), batches=(4, 16)))]
    assert len(names) == len(set(names)) == 14
    with pytest.raises(InputError, match="not between 0 and 1"):
        Asked(prune_ratios=(1.0,))
    with pytest.raises(InputError, match="below 1"):
        Asked(round_to=0)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_has_one_or_two_levers(name):
    assert 1 <= len(LEVERS[name]) <= 2
    assert name in LEVERS or name in NOT


@pytest.mark.parametrize("table", ALL.values(), ids=ALL)
def test_advice_carries_the_models_own_numbers(table):
    found = verdict(table, made.machine())
    rows = tuple(predicted(table).values())
    told = advise(found, rows)
    assert len([one for one in told if one.remedy]) <= 2
    numbers = {f"{row.expected:.3g}x" for row in rows}
    with_method = [lever for lever in LEVERS[found.class_] if lever.method]
    for lever in with_method:
        sentences = [one.sentence for one in told if one.remedy == lever.remedy]
        best = max(row.expected for row in rows if row.name.startswith(lever.method))
        # A lever that gives nothing here is not told beside one that does.
        assert len(sentences) == 1 or best < LITTLE
        assert all(any(number in sentence for number in numbers) for sentence in sentences)
    assert any(one.remedy for one in told)
    assert all(one.sentence.endswith(".") for one in told)


def test_integers_that_a_device_refuses_are_not_counted_upon():
    machine = made.machine(int8=None)
    refused = Ceilings(
        name="refuses", source=machine.source, confidence="measured", threads=1,
        flop_per_s={**machine.flop_per_s, "int8": Rate(supported=False)},
        levels=(Level(name="dram", size_bytes=None, bytes_per_s={"read": made.figure(12e9)}),),
    )  # fmt: skip
    assert "No int8 arithmetic" in predicted(HEAVY, refused)["int8 W8A8"].why
