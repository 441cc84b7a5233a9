"""Weight-only files compute what their codes say, get smaller, and GPTQ loses less than rounding to nearest."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_nets import node, normal, run, save, split_of, sqnr

from compress.quantize.schemes import WEIGHT_SCHEMES, WeightScheme
from compress.quantize.weight_only import block_scales, grid_of, pack_nbits, quantize_weights

BY_NAME = {scheme.name: scheme for scheme in WEIGHT_SCHEMES}


def linear(path: Path, *, bias: bool = False) -> Path:
    values = {"w": normal(0, 80, 48), "b": normal(1, 48)}
    product = node("Gemm", ["x", "w", "b"], "y") if bias else node("MatMul", ["x", "w"], "y")
    return save(path, [product], values, [80], [48])


def conv(path: Path) -> Path:
    return save(path, [node("Conv", ["x", "w"], "y")], {"w": normal(0, 24, 16, 3, 3)}, [16, 8, 8], [24, 6, 6])


def correlated(seed: int, samples: int, *shape: int) -> np.ndarray:
    return normal(seed, samples, *shape) + 2 * normal(seed + 1, samples, *([1] * len(shape)))


def made(source: Path, scheme: WeightScheme, x: np.ndarray) -> Path:
    target = source.with_name(f"{scheme.name}.onnx")
    quantize_weights(source, target, scheme, split_of(x), lambda _done, _total: None)
    return target


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9999), st.sampled_from([4, 8]), st.sampled_from([16, 32, 64]), st.integers(1, 130))
def test_codes_survive_packing(seed, bits, size, inputs):
    codes = np.random.default_rng(seed).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (3, inputs))
    packed = pack_nbits(codes, bits, size)
    wide = packed if bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    back = wide.astype(int).reshape(3, -1) - 2 ** (bits - 1)
    assert (back[:, :inputs] == codes).all()
    assert not back[:, inputs:].any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9999), st.sampled_from([4, 8]), st.sampled_from([None, 16, 32]), st.booleans())
def test_no_weight_is_off_by_more_than_half_a_step_unless_it_was_clipped(seed, bits, group, clip):
    rows = torch.randn(1, 5, 64, generator=torch.Generator().manual_seed(seed))
    scheme = WeightScheme(name="s", bits=bits, group=group, rounding="clip" if clip else "nearest")
    grid = grid_of(rows, scheme, None)
    wide = grid.scale.repeat_interleave(64 // grid.scale.shape[-1], dim=-1)
    inside = rows.abs() <= wide * (2 ** (bits - 1) - 1) * 1.0001
    assert bool((((grid.codes * wide - rows).abs() <= wide * 0.5001) | ~inside).all())
    assert clip or bool(inside.all())


def test_clipping_scales_never_raise_the_squared_error():
    blocks = torch.distributions.Laplace(0.0, 1.0).sample((6, 4, 32))

    def error(scale: torch.Tensor) -> torch.Tensor:
        codes = (blocks / scale[..., None]).round().clamp(-8, 7)
        return ((codes * scale[..., None] - blocks) ** 2).sum(dim=-1)

    plain, clipped = (error(block_scales(blocks, 7, clip=clip)) for clip in (False, True))
    assert bool((clipped <= plain + 1e-6).all())
    assert float(clipped.sum()) < float(plain.sum())


@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.parametrize("kind", ["matmul", "gemm", "conv"])
def test_the_runtime_computes_what_the_float_weight_of_the_codes_gives(tmp_path, kind, name):
    source = conv(tmp_path / "m.onnx") if kind == "conv" else linear(tmp_path / "m.onnx", bias=kind == "gemm")
    x = correlated(3, 40, 16, 8, 8) if kind == "conv" else correlated(3, 40, 80)
    target = made(source, BY_NAME[name], x)
    # 4 bits leave 1/7 of the widest weight of a group per step: 16 dB and more; 8 bits leave 1/127.
    assert sqnr(run(source, x), run(target, x)) > (16 if "int4" in name else 38)
    assert target.stat().st_size < (0.35 if "int4" in name else 0.55) * source.stat().st_size
    onnx.checker.check_model(str(target))


@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_gptq_loses_less_than_nearest_on_samples_it_did_not_see(tmp_path, kind):
    source = conv(tmp_path / "m.onnx") if kind == "conv" else linear(tmp_path / "m.onnx")
    shape = (16, 8, 8) if kind == "conv" else (80,)
    x, unseen = correlated(3, 300, *shape), correlated(77, 50, *shape)
    reference = run(source, unseen)
    nearest, gptq = (
        sqnr(reference, run(made(source, BY_NAME[name], x), unseen)) for name in ("weights-int4", "weights-int4-gptq")
    )
    assert gptq > nearest + 1


def test_an_embedding_is_looked_up_in_eight_bits(tmp_path):
    values = {"table": normal(0, 64, 32), "w": normal(1, 32, 64)}
    nodes = [
        node("Cast", ["x"], "ids", to=onnx.TensorProto.INT64),
        node("Gather", ["table", "ids"], "e"),
        node("MatMul", ["e", "w"], "y"),
    ]
    source = save(tmp_path / "m.onnx", nodes, values, [5], [5, 64])
    x = np.random.default_rng(0).integers(0, 64, (20, 5)).astype(np.float32)
    target = made(source, BY_NAME["weights-int8"], x)
    assert sqnr(run(source, x), run(target, x)) > 38
    assert {item.data_type for item in onnx.load(target).graph.initializer if "table_codes" in item.name} == {3}


def test_small_and_shared_weights_stay_in_float_with_the_reason(tmp_path):
    values = {"w": normal(0, 8, 8), "v": normal(1, 40, 40)}
    nodes = [node("MatMul", ["x", "w"], "a"), node("MatMul", ["a", "w"], "y")]
    source = save(tmp_path / "m.onnx", nodes, values, [8], [8])
    left = quantize_weights(
        source, tmp_path / "t.onnx", BY_NAME["weights-int4"], split_of(normal(2, 9, 8)), lambda _done, _total: None
    )
    assert left == ["n0/MatMul: 64 weights only", "n1/MatMul: 64 weights only"]
