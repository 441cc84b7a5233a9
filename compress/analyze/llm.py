"""Prefill and decode of a decoder-only language model from its sizes alone: work, bytes and what fewer bits can give.

Weights and caches dominate both phases; activations are left out, as a fused decoder keeps them on chip. Pure Python.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class LlmConfig:
    """Sizes of a decoder. weight_bytes, kv_bytes: per element; gated: three feed-forward matrices instead of two.

    head_dim: width of a head where it is not hidden / heads, else 0.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    tied: bool = False
    gated: bool = True
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    head_dim: int = 0

    @property
    def head_width(self) -> int:
        """Elements of one head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        """Elements of one key (or value) of one layer and token."""
        return self.head_width * self.kv_heads

    @property
    def block_params(self) -> int:
        """Matrix elements of all layers."""
        attention = 2 * self.hidden * (self.heads * self.head_width + self.kv_width)
        return self.layers * (attention + (3 if self.gated else 2) * self.hidden * self.intermediate)

    @property
    def linear_params(self) -> int:
        """Matrix elements read for every token: all layers and the head, not the embedding table."""
        return self.block_params + self.hidden * self.vocab

    @property
    def params(self) -> int:
        """All parameters of a model without biases and with two norms a layer and one at the end."""
        table = 0 if self.tied else self.hidden * self.vocab
        return self.linear_params + table + (2 * self.layers + 1) * self.hidden

    @property
    def kv_bytes_per_token(self) -> float:
        """Cache one token of one sequence takes in all layers."""
        return 2 * self.layers * self.kv_width * self.kv_bytes


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One forward pass. linear_flops, attention_flops: 2 per MAC; weight_bytes, kv_bytes: moved in total."""

    batch: int
    tokens: int
    context: int
    linear_flops: int
    attention_flops: int
    weight_bytes: float
    kv_bytes: float

    @property
    def flops(self) -> int:
        """All work of the pass."""
        return self.linear_flops + self.attention_flops

    @property
    def bytes(self) -> float:
        """All bytes of the pass."""
        return self.weight_bytes + self.kv_bytes

    @property
    def intensity_flop_per_byte(self) -> float:
        """Work per byte; below the device's ridge the pass is bound by memory."""
        return self.flops / self.bytes

    @property
    def kv_share(self) -> float:
        """Share of the bytes that are cache."""
        return self.kv_bytes / self.bytes

    def byte_speedup(self, *, weights: float = 1.0, kv: float = 1.0) -> float:
        """How many times fewer bytes when weights and cache shrink to these shares: the bound while memory-bound.

        int8 weights: weights=0.5 of 16 bits; int4: 0.25, or 0.2578 with a 16-bit scale per 128; 8-bit cache: kv=0.5.
        """
        return self.bytes / (self.weight_bytes * weights + self.kv_bytes * kv)


def decode(config: LlmConfig, *, batch: int, context: int) -> Phase:
    """One new token for each of `batch` sequences; context: tokens attended to, the new one among them."""
    return _phase(config, batch=batch, tokens=1, context=context, logits=1)


def prefill(config: LlmConfig, *, batch: int, tokens: int, causal: bool = False, all_logits: bool = True) -> Phase:
    """`tokens` prompt tokens at once. causal: half of the score matrix; all_logits: the head at every position."""
    phase = _phase(config, batch=batch, tokens=tokens, context=tokens, logits=tokens if all_logits else 1)
    return replace(phase, attention_flops=phase.attention_flops // 2) if causal else phase


def linear_intensity(*, rows: int, features: int, outputs: int, element_bytes: float = 2.0) -> float:
    """FLOP per byte of x (rows, features) @ w (features, outputs), each moved once."""
    elements = rows * features + features * outputs + rows * outputs
    return 2 * rows * features * outputs / (elements * element_bytes)


def _phase(config: LlmConfig, *, batch: int, tokens: int, context: int, logits: int) -> Phase:
    head = config.hidden * config.vocab
    # QK^T and PV: 2 FLOP each per query, key and hidden element, whatever the number of key heads.
    attention = 4 * config.layers * config.heads * config.head_width * tokens * context
    return Phase(
        batch=batch,
        tokens=tokens,
        context=context,
        linear_flops=2 * batch * (tokens * config.block_params + logits * head),
        attention_flops=batch * attention,
        weight_bytes=config.linear_params * config.weight_bytes,
        kv_bytes=batch * context * config.kv_bytes_per_token,
    )
