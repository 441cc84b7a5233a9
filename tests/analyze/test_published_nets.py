"""Parameters and work of well-known networks: sizes from the publishers, work derived once and checked against them."""

import resource
import time

import nets
import nets_text
import pytest
import torch

from compress.analyze.trace import trace
from compress.analyze.traffic import traffic

PIXELS = (1, 3, 224, 224)
DISTIL = nets_text.Bert(depth=6, types=False, pooler=False)
MINI = nets_text.Bert(width=384, depth=6)


def _ids(length):
    return torch.zeros(1, length, dtype=torch.long)


# Model, input, parameters, billion MAC. Sources: torchvision's weight tables (parameters, GFLOPS column = MAC) for the
# image networks; Hugging Face configurations for the others (parameters exact); MAC = contractions, full attention.
GOLDEN = {
    "resnet-18": (nets.resnet18, torch.empty(PIXELS), 11_689_512, 1.814073),
    "resnet-50": (nets.resnet50, torch.empty(PIXELS), 25_557_032, 4.089184),
    "mobilenet-v2": (nets.mobilenet_v2, torch.empty(PIXELS), 3_504_872, 0.300774),
    "efficientnet-b0": (nets.efficientnet_b0, torch.empty(PIXELS), 5_288_548, 0.385815),
    "vit-b-16": (nets.ViT, torch.empty(PIXELS), 86_567_656, 17.563828),
    "bert-base s128": (nets_text.Bert().build, _ids(128), 109_482_240, 11.174216),
    "bert-base s512": (nets_text.Bert().build, _ids(512), 109_482_240, 48.318972),
    "distilbert": (DISTIL.build, _ids(128), 66_362_880, 5.586813),
    "minilm": (MINI.build, _ids(128), 22_713_216, 1.434599),
    "gpt-2": (nets_text.Gpt2, _ids(1024), 124_439_808, 145.824154),
    "llama-2-7b": (nets_text.Llama, _ids(2048), 6_738_415_616, 14_630.8),
    **{
        f"whisper-{name} encoder": (
            lambda sizes=sizes: nets_text.WhisperEncoder(*sizes),
            torch.empty(1, 80, 3000),
            params,
            gmacs,
        )
        for name, sizes, params, gmacs in (
            ("tiny", (384, 4, 6), 8_208_384, 18.469),
            ("base", (512, 6, 8), 20_590_592, 43.684),
            ("small", (768, 12, 12), 88_154_112, 172.081),
            ("medium", (1024, 24, 16), 307_216_384, 569.033),
            ("large-v2", (1280, 32, 20), 636_784_640, 1136.333),
        )
    },
}


def _on_meta(make):
    with torch.device("meta"):
        return make()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_published_network_has_its_parameters_and_its_work(name):
    make, x, params, gmacs = GOLDEN[name]
    table = trace(_on_meta(make), (x,))
    assert not table.error
    assert not table.unknown_ops
    assert table.coverage == 1
    assert table.params == params
    assert table.macs / 1e9 == pytest.approx(gmacs, rel=1e-4)
    moved = traffic(table)
    assert 0 < moved.bytes_of("C") <= moved.bytes_of("G") <= moved.bytes_of("U")
    for level, rows in moved.per_op.items():
        assert sum(sum(row.values()) for row in rows) == moved.bytes_of(level)
        assert all(nbytes >= 0 for row in rows for nbytes in row.values())


def test_work_and_elements_are_the_same_in_half_precision_and_bytes_are_halved():
    x = torch.empty(PIXELS)
    whole = traffic(trace(_on_meta(nets.mobilenet_v2), (x,)))
    half = traffic(trace(_on_meta(nets.mobilenet_v2).half(), (x.half(),)))
    for level in "CGU":
        assert half.bytes_of(level) * 2 == whole.bytes_of(level)


def test_a_seven_billion_parameter_model_is_counted_without_its_memory():
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    table = trace(_on_meta(nets_text.Llama), (_ids(2048),))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert table.weight_bytes == 4 * 6_738_415_616
    assert grown_kib < 1024 * 1024
    assert time.process_time() - start < 60


def test_causal_attention_is_counted_whole_and_marked():
    table = trace(_on_meta(nets_text.Gpt2), (_ids(1024),))
    causal = [op for op in table.ops if op.causal]
    assert len(causal) == 12
    assert sum(op.flops for op in causal) / 1e9 == pytest.approx(38.655, abs=5e-4)
    assert table.ops[-1].flops / 1e9 == pytest.approx(79.047, abs=5e-4)
