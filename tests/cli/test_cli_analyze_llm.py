"""Decoder-only language models, from the sizes of their config alone: on a laptop, in seconds, without weights."""

import json
import subprocess
import sys
import time

import jsonschema
import pytest

from compress.__main__ import main
from compress.analyze.llm import decode
from compress.analyze.llm_config import config_of, is_decoder
from compress.analyze.llm_table import decode_table
from compress.analyze.schema import analysis_schema
from compress.analyze.traffic import traffic

LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    "tie_word_embeddings": False, "torch_dtype": "float16",
}  # fmt: skip
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
}  # fmt: skip
GPT_2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
    "vocab_size": 50257,
}  # fmt: skip
QWEN2_HALF_B = {
    "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
BERT = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522,
}  # fmt: skip
# Batch, GFLOP, GB, share of the cache, and what int8 weights, int4 weights and an 8-bit cache give at most; from
# linear parameters of 6.607e9 and 1.074 GB of cache a sequence at context 2048.
DECODE = [
    (1, 14.3, 14.3, 0.075, 1.86, 3.26, 1.04),
    (8, 114.3, 21.8, 0.394, 1.43, 1.83, 1.25),
    (16, 228.6, 30.4, 0.565, 1.28, 1.48, 1.39),
    (32, 457.2, 47.6, 0.722, 1.16, 1.26, 1.57),
    (64, 914.4, 81.9, 0.839, 1.09, 1.14, 1.72),
    (256, 3657.7, 288.1, 0.954, 1.02, 1.04, 1.91),
]


def written(folder, sizes):
    (folder / "config.json").write_text(json.dumps(sizes))
    return folder


def test_llama_2_7b_is_judged_by_a_small_process_in_seconds(tmp_path):
    folder = written(tmp_path, LLAMA_2_7B)
    code = (
        "import resource, sys\nfrom compress.__main__ import main\n"
        f"assert main(['analyze', {str(folder)!r}, '--device', 'h100-sxm', '--json', '--strict']) == 0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
        "assert 'torch' not in sys.modules"
    )
    started = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.monotonic() - started < 60
    peak_kib = int(ran.stderr.split()[-1])
    assert peak_kib * 1024 < 2 * 2**30
    document = json.loads(ran.stdout)
    jsonschema.validate(document, analysis_schema())
    assert document["model"]["params"] == 6_738_415_616
    assert (document["verdict"]["class"], document["device"]["name"]) == ("weight-bandwidth", "h100-sxm")
    rows = {row["batch"]: row for row in document["llm"]["rows"] if row["context"] == 2048}
    for batch, gflop, gbytes, share, int8, int4, cache in DECODE:
        row = rows[batch]
        # Each to the digits that are printed above, and to half a percent.
        assert row["flops"] / 1e9 == pytest.approx(gflop, rel=0.005)
        assert row["bytes"] / 1e9 == pytest.approx(gbytes, rel=0.005)
        assert row["kv_share"] == pytest.approx(share, abs=0.0005 + 0.005 * share)
        assert row["int8_weights_speedup"] == pytest.approx(int8, abs=0.005)
        assert row["int4_weights_speedup"] == pytest.approx(int4, abs=0.005)
        assert row["kv_int8_speedup"] == pytest.approx(cache, abs=0.005)


@pytest.mark.parametrize("sizes", [LLAMA_2_7B, MISTRAL_7B, GPT_2, QWEN2_HALF_B], ids=lambda one: one["model_type"])
@pytest.mark.parametrize(("batch", "context"), [(1, 2048), (16, 128)])
def test_the_table_of_a_decode_step_has_the_work_and_bytes_of_its_formula(sizes, batch, context):
    config = config_of(sizes)
    table = decode_table(config, batch=batch, context=context, dtype="bfloat16")
    phase = decode(config, batch=batch, context=context)
    moved = traffic(table).total["C"]
    assert table.flops == phase.flops
    assert (moved["weight"], moved["kv"]) == (phase.weight_bytes, phase.kv_bytes)
    assert table.params == config.params


def test_grouped_heads_shrink_the_cache_and_not_the_work_of_attention():
    whole, grouped = config_of({**MISTRAL_7B, "num_key_value_heads": 32}), config_of(MISTRAL_7B)
    assert whole.kv_bytes_per_token == 4 * grouped.kv_bytes_per_token
    assert decode(whole, batch=1, context=99).attention_flops == decode(grouped, batch=1, context=99).attention_flops


def test_gpt_2_has_two_matrices_four_times_its_width_and_a_tied_head():
    config = config_of(GPT_2)
    assert (config.intermediate, config.gated, config.tied) == (4 * 768, False, True)
    # 124,439,808 with biases, norms of two vectors, and 1024 positions.
    biases = 12 * (3 * 768 + 768 + 3072 + 768) + 25 * 768
    assert config.params + biases + 1024 * 768 == 124_439_808


@pytest.mark.parametrize(
    ("sizes", "decodes"),
    [
        (LLAMA_2_7B, True),
        (GPT_2, True),
        (QWEN2_HALF_B, True),
        ({"text_config": MISTRAL_7B, "model_type": "llava"}, True),
        ({**LLAMA_2_7B, "model_type": "newer", "architectures": ["NewerForCausalLM"]}, True),
        ({key: value for key, value in LLAMA_2_7B.items() if key not in ("model_type", "architectures")}, True),
        (BERT, False),
        ({key: value for key, value in BERT.items() if key != "model_type"}, False),
        ({key: value for key, value in BERT.items() if key not in ("model_type", "architectures")}, False),
        ({**BERT, "model_type": "distilbert", "architectures": ["DistilBertModel"]}, False),
        ({"model_type": "vit", "hidden_size": 768, "image_size": 224}, False),
        ({"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "vocab_size": 9}, False),
        ({"model_type": "clip", "text_config": {"model_type": "clip_text_model", "hidden_size": 512}}, False),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "num_layers": 6}, False),
    ],
)
def test_decoders_are_told_from_encoders_that_have_the_same_keys(sizes, decodes):
    assert is_decoder(sizes) is decodes


def test_batch_and_sequence_choose_the_step_and_join_the_table(tmp_path, capsys):
    folder = written(tmp_path, MISTRAL_7B)
    assert main(["analyze", str(folder), "--device", "h100-sxm", "--batch", "3", "--seq", "777", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, analysis_schema())
    assert document["model"]["flops"] == decode(config_of(MISTRAL_7B), batch=3, context=777).flops
    assert (3, 777) in {(row["batch"], row["context"]) for row in document["llm"]["rows"]}


def test_the_terminal_shows_the_table_of_batch_and_context(tmp_path, capsys):
    assert main(["analyze", str(written(tmp_path, LLAMA_2_7B)), "--device", "h100-sxm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("batch context"))
    names = ("batch", "context", "FLOP/byte", "KV share", "bound ms", "fits", "int8 weights", "int4 weights", "KV int8")
    assert head.split() == " ".join(names).split()
    assert any(line.split()[:4] == ["64", "2048", "11.2", "84%"] for line in lines)


@pytest.mark.parametrize("suffix", ["r.svg", "r.png"])
def test_the_roofline_of_a_decode_step_is_drawn(tmp_path, suffix, capsys):
    picture = tmp_path / suffix
    arguments = ["analyze", str(written(tmp_path, GPT_2)), "--device", "h100-sxm", "--roofline", str(picture)]
    assert main(arguments) == 0
    assert picture.stat().st_size > 1000
