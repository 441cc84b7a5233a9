"""Batch x context of a language model on a device, and sizes from a config.json."""

import pytest

from compress.analyze.llm import LlmConfig, decode
from compress.analyze.llm_config import config_of
from compress.analyze.llm_view import llm_view
from compress.device.devices import device_named
from compress.errors import InputError

LLAMA_7B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "intermediate_size": 11008, "vocab_size": 32000, "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip
# Llama-2-7B, 16 bits, context 2048: FLOP/byte, KV %, int8 and int4 weights, 8-bit cache.
ROWS = [
    (1, 1.00, 8, 1.86, 3.26, 1.04),
    (8, 5.2, 39, 1.43, 1.83, 1.25),
    (16, 7.5, 57, 1.28, 1.48, 1.39),
    (32, 9.6, 72, 1.16, 1.26, 1.57),
    (64, 11.2, 84, 1.09, 1.14, 1.72),
    (256, 12.7, 95, 1.02, 1.04, 1.91),
]


@pytest.mark.parametrize("device", ["h100-sxm", "a100-80-sxm", "l4"])
def test_the_table_of_a_seven_billion_parameter_model_holds_on_every_device_above_its_intensity(device):
    view = llm_view(config_of(LLAMA_7B), device_named(device), contexts=(2048,))
    for row, printed in zip(view.rows, ROWS, strict=True):
        found = (
            row.batch,
            row.intensity_flop_per_byte,
            100 * row.kv_share,
            row.int8_weights_speedup,
            row.int4_weights_speedup,
            row.kv_int8_speedup,
        )
        for value, shown in zip(found, printed, strict=True):
            decimals = len(str(shown).partition(".")[2])
            assert value == pytest.approx(shown, abs=0.5 * 10**-decimals + 1e-9)
        assert row.memory_bound
        assert row.time_ms == pytest.approx(row.bytes / device_named(device).bandwidth() * 1e3)


def test_decoding_stays_under_the_ridge_of_an_h100_and_prefill_does_not():
    view = llm_view(config_of(LLAMA_7B), device_named("h100-sxm"), contexts=(2048,))
    assert view.ridge_flop_per_byte == pytest.approx(295.3, abs=0.1)
    assert "12.7 FLOP a byte" in view.decode
    assert "under the ridge of 295" in view.decode
    assert "batch 16 at context 2048" in view.decode
    assert "above the ridge" in view.prefill


def test_a_short_context_is_about_weights():
    view = llm_view(config_of(LLAMA_7B), device_named("h100-sxm"), contexts=(128,), batches=(1, 8))
    assert "it reads weights" in view.decode
    assert view.rows[0].int4_weights_speedup == pytest.approx(3.94, abs=0.005)


def test_above_the_ridge_fewer_bytes_give_nothing():
    row = llm_view(config_of(LLAMA_7B), device_named("h100-sxm"), batches=(8192,), contexts=(1,)).rows[0]
    assert not row.memory_bound
    assert row.int4_weights_speedup == 1.0


def test_what_does_not_fit_is_said():
    view = llm_view(config_of(LLAMA_7B), device_named("h100-sxm"), contexts=(2048,))
    assert [row.fits for row in view.rows] == [True, True, True, True, False, False]
    assert llm_view(config_of(LLAMA_7B), device_named("epyc-7763"), dtype="fp32").rows[0].fits is None


def test_sizes_come_from_the_keys_of_a_config():
    assert config_of(LLAMA_7B) == LlmConfig(
        hidden=4096, layers=32, heads=32, kv_heads=32, intermediate=11008, vocab=32000
    )
    grouped = config_of({**LLAMA_7B, "num_key_value_heads": 8, "dtype": "float32", "tie_word_embeddings": True})
    assert (grouped.kv_heads, grouped.weight_bytes, grouped.tied) == (8, 4.0, True)
    assert config_of({"text_config": LLAMA_7B}) == config_of(LLAMA_7B)
    bare = {key: value for key, value in LLAMA_7B.items() if key not in ("num_key_value_heads", "torch_dtype")}
    assert config_of(bare) == config_of(LLAMA_7B)


def test_heads_wider_than_their_part_of_the_model_are_counted():
    wide = config_of({**LLAMA_7B, "head_dim": 256})
    plain = config_of(LLAMA_7B)
    assert wide.kv_bytes_per_token == 2 * plain.kv_bytes_per_token
    assert wide.block_params - plain.block_params == 32 * 4 * 4096 * 4096
    assert config_of({**LLAMA_7B, "head_dim": 128}).params == plain.params
    short, long = (decode(wide, batch=1, context=context).attention_flops for context in (1, 101))
    assert long - short == 100 * 4 * 32 * 32 * 256


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"hidden_size": None}, "hidden_size: None is no positive whole number"),
        ({"vocab_size": "32000"}, "vocab_size: '32000'"),
        ({"num_hidden_layers": True}, "num_hidden_layers: True"),
        ({"num_key_value_heads": 0}, "num_key_value_heads: 0"),
        ({"torch_dtype": "complex64"}, "dtype: 'complex64' is not known"),
        ({"num_local_experts": 8}, "8 experts"),
    ],
)
def test_a_config_that_cannot_be_read_says_which_key(change, fact):
    with pytest.raises(InputError, match=fact):
        config_of({**LLAMA_7B, **change}, "m/config.json")


def test_missing_keys_are_all_named():
    with pytest.raises(InputError, match=r"m/config.json: hidden_size, intermediate_size: missing"):
        config_of({k: v for k, v in LLAMA_7B.items() if k not in ("hidden_size", "intermediate_size")}, "m/config.json")


def test_an_empty_table_and_a_device_without_rates_are_refused():
    with pytest.raises(InputError, match="start at 1"):
        llm_view(config_of(LLAMA_7B), device_named("l4"), batches=())
