"""Language models from their sizes, against the traced model and against a published table."""

import nets_text
import pytest
import torch

from compress.analyze.llm import LlmConfig, decode, linear_intensity, prefill
from compress.analyze.trace import trace
from compress.analyze.traffic import traffic

LLAMA_7B = LlmConfig(hidden=4096, layers=32, heads=32, kv_heads=32, intermediate=11008, vocab=32000)
SMALL = LlmConfig(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, vocab=50, weight_bytes=4.0, kv_bytes=4.0)


def _small():
    return nets_text.Llama(vocab=50, width=32, depth=2, heads=4, inner=48, kv_heads=2)


def test_prefill_from_sizes_equals_the_traced_model():
    table = trace(_small(), (torch.zeros(3, 7, dtype=torch.long),))
    phase = prefill(SMALL, batch=3, tokens=7)
    assert (phase.flops, SMALL.params) == (table.flops, table.params)
    assert prefill(SMALL, batch=3, tokens=7, causal=True).flops == table.flops - phase.attention_flops // 2


def test_decode_from_sizes_equals_the_traced_model_with_a_cache():
    past = [(torch.rand(3, 2, 9, 8), torch.rand(3, 2, 9, 8)) for _ in range(2)]
    table = trace(_small(), (torch.zeros(3, 1, dtype=torch.long), past))
    phase = decode(SMALL, batch=3, context=10)
    assert phase.flops == table.flops
    assert phase.kv_bytes == traffic(table).total["C"]["kv"]
    # The trace reads the norms and one row of the embedding table as well.
    assert 0 <= traffic(table).total["C"]["weight"] - phase.weight_bytes <= 4 * (5 * 32 + 3 * 32)


# Llama-2-7B, 16 bits, context 2048: GFLOP, GB, FLOP/byte, KV %, int8 and int4 weights, 8-bit KV; then context 128:
# FLOP/byte and int4 weights. Worked out from 6.607e9 matrix elements and 1.074 GB of cache a sequence.
ROWS = [
    (1, 14.3, 14.3, 1.00, 8, 1.86, 3.26, 1.04, 1.0, 3.94),
    (8, 114, 21.8, 5.2, 39, 1.43, 1.83, 1.25, 7.7, 3.58),
    (16, 229, 30.4, 7.5, 57, 1.28, 1.48, 1.39, 14.9, 3.26),
    (32, 457, 47.6, 9.6, 72, 1.16, 1.26, 1.57, 27.7, 2.82),
    (64, 914, 81.9, 11.2, 84, 1.09, 1.14, 1.72, 48.5, 2.30),
    (256, 3658, 288, 12.7, 95, 1.02, 1.04, 1.91, 112, 1.48),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"batch-{row[0]}" for row in ROWS])
def test_decoding_has_the_published_work_bytes_and_bounds(row):
    batch = row[0]
    long, short = decode(LLAMA_7B, batch=batch, context=2048), decode(LLAMA_7B, batch=batch, context=128)
    found = (
        long.flops / 1e9,
        long.bytes / 1e9,
        long.intensity_flop_per_byte,
        100 * long.kv_share,
        long.byte_speedup(weights=0.5),
        long.byte_speedup(weights=0.25),
        long.byte_speedup(kv=0.5),
        short.intensity_flop_per_byte,
        short.byte_speedup(weights=0.25),
    )
    for value, printed in zip(found, row[1:], strict=True):
        decimals = len(str(printed).partition(".")[2])
        assert value == pytest.approx(printed, abs=0.5 * 10**-decimals + 1e-9)


def test_prefill_of_a_seven_billion_parameter_model_has_the_published_work():
    whole = prefill(LLAMA_7B, batch=1, tokens=2048)
    assert LLAMA_7B.params == 6_738_415_616
    assert whole.linear_flops / 1e9 == pytest.approx(27_062.6, abs=0.05)
    assert whole.attention_flops / 1e9 == pytest.approx(2_199.0, abs=0.05)
    assert prefill(LLAMA_7B, batch=1, tokens=2048, causal=True).flops / 1e9 == pytest.approx(28_162.1, abs=0.05)
    assert prefill(LLAMA_7B, batch=1, tokens=2048, all_logits=False).flops / 1e9 == pytest.approx(28_725.0, abs=0.05)


def test_the_intensity_of_single_products_matches_the_published_ones():
    assert linear_intensity(rows=2048, features=4096, outputs=4096) == pytest.approx(1024.0)
    assert linear_intensity(rows=2048, features=4096, outputs=11008) == pytest.approx(1214.7, abs=0.05)
    assert linear_intensity(rows=1, features=4096, outputs=4096) == pytest.approx(1.0, abs=0.005)
