"""Decoding of a language model over batch and context: intensity, what fills the bytes, what fewer bits can give.

Pure Python, from the sizes of `llm_config` and the ceilings of a device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from compress.analyze.llm import LlmConfig, Phase, decode, prefill
from compress.analyze.rates import roof
from compress.device.ceilings import Ceilings
from compress.errors import InputError

TYPE_OF_BYTES = {4.0: "fp32", 2.0: "bf16", 1.0: "fp8"}
BATCHES = (1, 8, 16, 32, 64, 256)
CONTEXTS = (128, 2048)
# Half of the bytes decide what a pass is about.
DOMINATES = 0.5


@dataclass(frozen=True, kw_only=True)
class LlmRow:
    """One decode step.

    *_speedup: the most that 8- and 4-bit weights (scales not counted) and an 8-bit cache can give;
    time_ms: the bound of the step; fits: weights and cache in the device's memory, None where its size is not known.
    """

    batch: int
    context: int
    flops: int
    bytes: float
    intensity_flop_per_byte: float
    kv_share: float
    time_ms: float
    memory_bound: bool
    int8_weights_speedup: float
    int4_weights_speedup: float
    kv_int8_speedup: float
    fits: bool | None


@dataclass(frozen=True, kw_only=True)
class LlmView:
    """rows: by context, then batch; ridge_flop_per_byte: of the device in `dtype`; decode, prefill: in words."""

    dtype: str
    ridge_flop_per_byte: float
    rows: tuple[LlmRow, ...]
    decode: str
    prefill: str


def llm_view(
    config: LlmConfig,
    ceilings: Ceilings,
    *,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
    dtype: str | None = None,
) -> LlmView:
    """The table and two sentences. dtype: what products run in (fp32, bf16, ...), else the type of the weights' size.

    Raises InputError when no batch or context is given, or the device has no known rate.
    """
    if not batches or not contexts or min(*batches, *contexts) < 1:
        raise InputError("llm view", "batches and contexts start at 1", "Give at least one of each")
    kind = dtype or TYPE_OF_BYTES.get(config.weight_bytes, "bf16")
    rate = roof(ceilings, kind)
    if rate is None:
        raise InputError(ceilings.name, f"no arithmetic rate is known in {kind}", "Choose another device or type")
    limits = _Limits(rate=rate, bandwidth=ceilings.bandwidth(), memory=ceilings.memory_bytes)
    rows = tuple(_row(config, limits, batch, context) for context in contexts for batch in batches)
    return LlmView(
        dtype=kind,
        ridge_flop_per_byte=limits.ridge,
        rows=rows,
        decode=_decode_sentence(rows, limits),
        prefill=_prefill_sentence(prefill(config, batch=1, tokens=max(contexts)), limits),
    )


@dataclass(frozen=True, kw_only=True)
class _Limits:
    rate: float
    bandwidth: float
    memory: int | None

    @property
    def ridge(self) -> float:
        return self.rate / self.bandwidth

    def time_s(self, phase: Phase, *, weights: float = 1.0, kv: float = 1.0) -> float:
        """With weights and cache shrunk to these shares, and work as before."""
        nbytes = phase.weight_bytes * weights + phase.kv_bytes * kv
        return max(phase.flops / self.rate, nbytes / self.bandwidth)


def _row(config: LlmConfig, limits: _Limits, batch: int, context: int) -> LlmRow:
    phase = decode(config, batch=batch, context=context)
    now = limits.time_s(phase)
    int8, int4 = (min(1.0, nbytes / config.weight_bytes) for nbytes in (1.0, 0.5))
    return LlmRow(
        batch=batch,
        context=context,
        flops=phase.flops,
        bytes=phase.bytes,
        intensity_flop_per_byte=phase.intensity_flop_per_byte,
        kv_share=phase.kv_share,
        time_ms=now * 1e3,
        memory_bound=phase.intensity_flop_per_byte < limits.ridge,
        int8_weights_speedup=now / limits.time_s(phase, weights=int8),
        int4_weights_speedup=now / limits.time_s(phase, weights=int4),
        kv_int8_speedup=now / limits.time_s(phase, kv=min(1.0, 1.0 / config.kv_bytes)),
        fits=None if limits.memory is None else phase.bytes <= limits.memory,
    )


def _decode_sentence(rows: Sequence[LlmRow], limits: _Limits) -> str:
    most = max(rows, key=lambda row: row.intensity_flop_per_byte)
    where = f"batch {most.batch}, context {most.context}"
    reach = f"Decoding reaches {most.intensity_flop_per_byte:.3g} FLOP a byte at most ({where})"
    if most.intensity_flop_per_byte >= limits.ridge:
        return f"{reach}, above the ridge of {limits.ridge:.3g}: there it is arithmetic, below it bytes."
    cached = [row for row in rows if row.kv_share > DOMINATES]
    if not cached:
        return f"{reach}, under the ridge of {limits.ridge:.3g}: it reads weights, so fewer bits for them help."
    first = min(cached, key=lambda row: row.batch * row.context)
    return (
        f"{reach}, under the ridge of {limits.ridge:.3g}; from batch {first.batch} at context {first.context} "
        f"most bytes are cache ({first.kv_share:.0%}), where an 8-bit cache gives up to "
        f"{first.kv_int8_speedup:.3g}x and 4-bit weights up to {first.int4_weights_speedup:.3g}x."
    )


def _prefill_sentence(phase: Phase, limits: _Limits) -> str:
    reached, ridge = phase.intensity_flop_per_byte, limits.ridge
    start = f"Prefill of {phase.tokens} tokens does {reached:.4g} FLOP a byte"
    if reached >= ridge:
        return f"{start}, above the ridge of {ridge:.3g}: arithmetic, which fewer bits for weights alone do not change."
    return f"{start}, under the ridge of {ridge:.3g}: it reads weights even here."
