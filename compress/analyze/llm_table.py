"""One decode step of a language model as an op table, so that bounds, classes and methods apply to it. Pure Python.

The matrices and the attention of every layer, and the head: what `llm.decode` counts, row by row. Norms, activations of
the feed-forward and the embedding table move too little to matter beside them and are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from compress.analyze.llm import LlmConfig
from compress.analyze.table import Kind, Op, OpTable, Role, TensorInfo


def decode_table(config: LlmConfig, *, batch: int, context: int, dtype: str) -> OpTable:
    """One new token for each of `batch` sequences that attend to `context` tokens. dtype: torch's name of the type."""
    draft = _Draft(config=config, dtype=dtype)
    first = draft.tensor("hidden", (batch, 1, config.hidden), "io")
    last = first
    for layer in range(config.layers):
        last = draft.layer(f"layers.{layer}", last, batch, context)
    logits = draft.linear("lm_head", last, config.vocab, role="io")
    return OpTable(
        source="config",
        ops=tuple(draft.ops),
        params=config.params,
        weight_bytes=round(config.params * config.weight_bytes),
        inputs=(first, *draft.caches),
        outputs=(logits,),
        notes=(
            f"one decode step: batch {batch}, {context} tokens in the cache; params and bytes are of all weights, "
            "without biases",
        ),
    )


@dataclass(kw_only=True)
class _Draft:
    """A table being written. Storages are numbered as tensors are made."""

    config: LlmConfig
    dtype: str
    ops: list[Op] = field(default_factory=list)
    caches: list[TensorInfo] = field(default_factory=list)
    storages: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def tensor(self, name: str, shape: tuple[int, ...], role: Role) -> TensorInfo:
        size = self.config.kv_bytes if role == "kv" else self.config.weight_bytes
        nbytes = round(prod(shape) * size)
        return TensorInfo(
            name=name, shape=shape, dtype=self.dtype, itemsize=size, role=role, storage=next(self.storages), offset=0,
            nbytes=nbytes, storage_bytes=nbytes,
        )  # fmt: skip

    def layer(self, name: str, given: TensorInfo, batch: int, context: int) -> TensorInfo:
        """Projections, attention over the cache, and the feed-forward."""
        config = self.config
        heads = config.heads * config.head_width
        query = self.linear(f"{name}.q", given, heads)
        for part in ("k", "v"):
            self.linear(f"{name}.{part}", given, config.kv_width)
        shape = (batch, config.kv_heads, context, config.head_width)
        cached = [self.tensor(f"{name}.{part}_cache", shape, "kv") for part in ("k", "v")]
        self.caches += cached
        mixed = self.tensor("", (batch, 1, heads), "act")
        # QK^T and PV, each once per head, cached token and element of a head.
        macs = 2 * batch * heads * context
        self._add(f"{name}.attention", "attention", [query, *cached], mixed, macs)
        out = self.linear(f"{name}.o", mixed, config.hidden)
        for part in ("gate", "up") if config.gated else ("up",):
            wide = self.linear(f"{name}.{part}", out, config.intermediate)
        return self.linear(f"{name}.down", wide, config.hidden)

    def linear(self, name: str, given: TensorInfo, outputs: int, role: Role = "act") -> TensorInfo:
        """given: (batch, 1, features)."""
        weight = self.tensor(f"{name}.weight", (outputs, given.shape[-1]), "weight")
        made = self.tensor("", (*given.shape[:-1], outputs), role)
        self._add(name, "contraction", [given, weight], made, prod(given.shape) * outputs)
        return made

    def _add(self, module: str, kind: Kind, given: list[TensorInfo], made: TensorInfo, macs: int) -> None:
        op = "aten::linear" if kind == "contraction" else "aten::scaled_dot_product_attention"
        self.ops.append(
            Op(
                id=len(self.ops), op=op, module=module, kind=kind, inputs=tuple(given), outputs=(made,),
                reads=tuple(given), writes=(made,), macs=macs,
            )
        )  # fmt: skip
