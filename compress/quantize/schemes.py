"""The ways to quantize that are worth trying on ONNX Runtime's CPU provider, safest first. Pure data.

Which one wins depends on the net and on the CPU by factors of ten, so they are tried, not chosen by rule. S8
activations are left out: on this provider they become DequantizeLinear + float kernels and were slower than float on
every net tried.
"""

from dataclasses import dataclass, replace
from typing import Literal

Rounding = Literal["nearest", "clip", "gptq"]


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """activation, weight: `u8` or `s8`; reduced: 7-bit weights, which keeps u8 x s8 sums inside 16 bits.

    weight_bits: below 8, s8 weights use only the 2^bits - 1 values around zero, whatever they are stored in.
    """

    name: str
    kind: Literal["static", "dynamic"]
    activation: Literal["u8", "s8"] = "u8"
    weight: Literal["u8", "s8"] = "s8"
    per_channel: bool = False
    reduced: bool = False
    weight_bits: int = 8


SCHEMES = (
    Scheme(name="u8s8-channel-reduced", kind="static", per_channel=True, reduced=True),
    Scheme(name="u8s8-channel", kind="static", per_channel=True),
    Scheme(name="u8s8-tensor-reduced", kind="static", reduced=True),
    Scheme(name="u8s8-tensor", kind="static"),
    Scheme(name="u8u8-tensor", kind="static", weight="u8"),
    Scheme(name="dynamic-s8-channel-reduced", kind="dynamic", weight="s8", per_channel=True, reduced=True),
    Scheme(name="dynamic-s8-channel", kind="dynamic", weight="s8", per_channel=True),
    Scheme(name="dynamic-u8-tensor", kind="dynamic", weight="u8"),
)


@dataclass(frozen=True, kw_only=True)
class WeightScheme:
    """bits: 8 or 4; group: inputs that share a scale (a power of two from 16 on), None for one per output channel."""

    name: str
    bits: int
    group: int | None = None
    rounding: Rounding = "nearest"


WEIGHT_SCHEMES = (
    WeightScheme(name="weights-int8", bits=8),
    WeightScheme(name="weights-int4", bits=4, group=32),
    WeightScheme(name="weights-int4-clip", bits=4, group=32, rounding="clip"),
    WeightScheme(name="weights-int4-gptq", bits=4, group=32, rounding="gptq"),
)
# From this share of the work in matrix products with constant weights on, a net counts as Linear-heavy.
LINEAR_HEAVY = 0.5


def schemes_for(*, linear_share: float, method: str, overflows: bool = True, weight_bits: int = 8) -> list[Scheme]:
    """The schemes to try. linear_share: share of macs in matrix products; method: `auto` or one scheme's name.

    Dynamic quantization makes convolutions several times slower, so it is tried on Linear-heavy nets only.
    overflows: whether u8 x s8 sums can leave 16 bits on this CPU. A dynamic file cannot be run with exact sums beside
    it to see whether they do, so that its weights keep 7 bits there, and all 8 elsewhere.
    weight_bits below 8 leaves the static s8 schemes; sums of such small weights cannot overflow, so none is reduced.
    Raises ValueError on an unknown name.
    """
    chosen = _schemes_of(linear_share=linear_share, method=method, overflows=overflows)
    if weight_bits == 8:
        return chosen
    narrow = [narrowed(one, weight_bits) for one in chosen if one.kind == "static" and one.weight == "s8"]
    return list(dict.fromkeys(narrow))


def narrowed(scheme: Scheme, weight_bits: int) -> Scheme:
    """The scheme on a narrower grid of weights: `u8s8-tensor` with 4 bits is `u8s8-tensor-w4`."""
    if weight_bits == 8:
        return scheme
    name = f"{scheme.name.removesuffix('-reduced')}-w{weight_bits}"
    return replace(scheme, name=name, reduced=False, weight_bits=weight_bits)


def _schemes_of(*, linear_share: float, method: str, overflows: bool) -> list[Scheme]:
    if method != "auto":
        chosen = [scheme for scheme in SCHEMES if scheme.name == method]
        if not chosen:
            raise ValueError(method)
        return chosen
    static = [scheme for scheme in SCHEMES if scheme.kind == "static"]
    dynamic = [scheme for scheme in SCHEMES if scheme.kind == "dynamic" and _bears(scheme, overflows)]
    return static + (dynamic if linear_share >= LINEAR_HEAVY else [])


def _bears(scheme: Scheme, overflows: bool) -> bool:
    return scheme.weight == "u8" or scheme.reduced == overflows


def scheme_names() -> list[str]:
    return [scheme.name for scheme in SCHEMES]
