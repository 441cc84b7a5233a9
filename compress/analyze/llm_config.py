"""Sizes of a decoder-only language model from its `config.json`, in the keys of each family. Pure Python.

Encoders have the same keys as decoders, so sizes alone never make one: a family does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compress.analyze.llm import LlmConfig
from compress.errors import InputError

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
BYTES_OF = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0, "int8": 1.0}
# What only decoders say about themselves; for files that name neither a type nor an architecture.
DECODER_KEYS = ("num_key_value_heads", "rms_norm_eps", "rope_theta")
CAUSAL = ("ForCausalLM", "LMHeadModel")
# Feed-forward of a GPT: four times the width where nothing else is said.
USUAL_EXPANSION = 4


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a family writes its sizes. gated: three feed-forward matrices, not two; tied: what an absent key means;
    head_dim: the width of a head that its class assumes, 0 for hidden / heads."""

    hidden: str = "hidden_size"
    layers: str = "num_hidden_layers"
    heads: str = "num_attention_heads"
    kv_heads: str = "num_key_value_heads"
    intermediate: str = "intermediate_size"
    gated: bool = True
    tied: bool = False
    head_dim: int = 0


LLAMA = Family()
GEMMA = Family(tied=True, head_dim=256)
GPT2 = Family(hidden="n_embd", layers="n_layer", heads="n_head", intermediate="n_inner", gated=False, tied=True)
FALCON = Family(kv_heads="num_kv_heads", intermediate="ffn_hidden_size", gated=False, tied=True)
# Defaults of `transformers`' own classes, by `model_type`.
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        ("llama", "mistral", "ministral", "qwen2", "qwen3", "phi3", "olmo", "olmo2", "stablelm", "internlm2",
         "exaone4", "glm", "glm4", "helium"),
        LLAMA,
    ),
    "granite": LLAMA,
    "smollm3": Family(tied=True),
    "cohere": Family(tied=True),
    "gemma": GEMMA,
    "gemma2": GEMMA,
    "gemma3_text": GEMMA,
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gptj": Family(hidden="n_embd", layers="n_layer", heads="n_head", intermediate="n_inner", gated=False),
    "gpt_neox": Family(gated=False),
    "phi": Family(gated=False),
    "nemotron": Family(gated=False),
    "starcoder2": Family(gated=False, tied=True),
    "opt": Family(intermediate="ffn_dim", gated=False, tied=True),
    "bloom": Family(layers="n_layer", heads="n_head", intermediate="n_inner", gated=False, tied=True),
    "falcon": FALCON,
    "mpt": Family(hidden="d_model", layers="n_layers", heads="n_heads", intermediate="n_inner", gated=False, tied=True),
}  # fmt: skip


def is_decoder(sizes: Mapping[str, Any]) -> bool:
    """Whether a config, or its `text_config`, is of a decoder-only language model, by its own word."""
    inner = text_part(sizes)
    if inner.get("model_type") in FAMILIES:
        return not inner.get("is_encoder_decoder", False)
    names = [str(name) for name in (inner.get("architectures") or sizes.get("architectures") or [])]
    if names:
        return any(name.endswith(CAUSAL) for name in names) and _fits(inner, LLAMA) and _has_decoder_keys(inner)
    return not inner.get("model_type") and _has_decoder_keys(inner)


def config_of(sizes: Mapping[str, Any], place: str = "config.json") -> LlmConfig:
    """Sizes of a decoder; a family that is not known is read like Llama.

    num_key_value_heads: one for each head where not given; type: 16 bits.
    Raises InputError for a size that is missing or no positive whole number, a type not known, or a mixture of experts.
    """
    sizes = text_part(sizes)
    family = FAMILIES.get(str(sizes.get("model_type")), LLAMA)
    required = [family.hidden, family.layers, family.heads, "vocab_size"]
    required += [family.intermediate] if family.gated else []
    missing = [key for key in required if key not in sizes]
    if missing:
        raise InputError(place, f"{', '.join(missing)}: missing", "Give the config.json of a decoder-only model")
    experts = [key for key in EXPERTS if (sizes.get(key) or 0) > 1]
    if experts:
        raise InputError(place, f"{experts[0]}: {sizes[experts[0]]} experts", "Mixtures of experts are not counted")
    hidden, layers, heads, vocab = (
        _whole(sizes, key, place) for key in (family.hidden, family.layers, family.heads, "vocab_size")
    )
    nbytes = _type_bytes(sizes, place)
    return LlmConfig(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(sizes, family, heads, place),
        intermediate=_optional(sizes, family.intermediate, USUAL_EXPANSION * hidden, place),
        vocab=vocab,
        tied=bool(sizes.get("tie_word_embeddings", family.tied)),
        gated=family.gated,
        weight_bytes=nbytes,
        kv_bytes=nbytes,
        head_dim=_optional(sizes, "head_dim", family.head_dim, place),
    )


def text_part(sizes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model inside a config of several parts, else the whole."""
    inner = sizes.get("text_config")
    return inner if isinstance(inner, Mapping) else sizes


def _fits(sizes: Mapping[str, Any], family: Family) -> bool:
    return all(key in sizes for key in (family.hidden, family.layers, family.heads, family.intermediate, "vocab_size"))


def _has_decoder_keys(sizes: Mapping[str, Any]) -> bool:
    return any(key in sizes for key in DECODER_KEYS)


def _kv_heads(sizes: Mapping[str, Any], family: Family, heads: int, place: str) -> int:
    """Families of before grouped heads say `multi_query`: one pair for all of them."""
    newer = bool(sizes.get("new_decoder_architecture", False))
    if sizes.get("multi_query") and not newer:
        return 1
    return _optional(sizes, family.kv_heads, heads, place)


def _optional(sizes: Mapping[str, Any], key: str, otherwise: int, place: str) -> int:
    return otherwise if sizes.get(key) is None else _whole(sizes, key, place)


def _whole(sizes: Mapping[str, Any], key: str, place: str) -> int:
    value = sizes[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(place, f"{key}: {value!r} is no positive whole number", "Give the config.json of the model")
    return value


def _type_bytes(sizes: Mapping[str, Any], place: str) -> float:
    name = sizes.get("dtype") or sizes.get("torch_dtype") or "bfloat16"
    plain = str(name).removeprefix("torch.")
    if plain not in BYTES_OF:
        raise InputError(place, f"dtype: {name!r} is not known", f"Known: {', '.join(BYTES_OF)}")
    return BYTES_OF[plain]
