"""One way to make a quantized file, and the steps that try ways from cheap to dear. Pure data."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from compress.quantize.schemes import SCHEMES, Scheme

Clip = Literal["entropy", "percentile", "mse"]
Ranges = Literal["minmax", "entropy", "percentile", "mse"]
Prepare = Literal["", "equalize", "smooth"]
Step = Literal["variants", "clip", "equalize", "smooth", "round", "mixed"]

CLIPS: tuple[Clip, ...] = ("percentile", "mse", "entropy")
# What each step changes, in words.
WHAT: dict[Step, str] = {
    "variants": "weights and activations to 8 bits, every plausible scheme",
    "clip": "activation ranges that leave outliers out",
    "equalize": "scales moved between convolutions, means of channels corrected",
    "smooth": "activation outliers moved into weights",
    "round": "weights rounded for the least error of each layer",
    "mixed": "the operators that lose most for their time back in float",
}
# The step behind each method name that is no scheme.
METHOD_STEPS: dict[str, Step] = {
    "clip-entropy": "clip",
    "clip-percentile": "clip",
    "clip-mse": "clip",
    "equalize": "equalize",
    "smooth": "smooth",
    "round": "round",
    "mixed": "mixed",
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """prepare: what is done to the float file first; learn: weights rounded by `reconstruct`; bias: means corrected;

    keep_float: nodes left in float beside those of the recipe.
    """

    scheme: Scheme
    prepare: Prepare = ""
    ranges: Ranges = "minmax"
    learn: bool = False
    bias: bool = False
    keep_float: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        parts = [
            self.scheme.name,
            "" if self.ranges == "minmax" else f"clip-{self.ranges}",
            self.prepare,
            "round" if self.learn else "bias" if self.bias else "",
            "mixed" if self.keep_float else "",
        ]
        return "+".join(filter(None, parts))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def steps_for(*, linear_heavy: bool) -> tuple[Step, ...]:
    """The steps of `method: auto`, cheap to dear."""
    return ("variants", "clip", "smooth" if linear_heavy else "equalize", "round", "mixed")


def ways_of(step: Step, base: Way, method: str = "auto") -> list[Way]:
    """The ways a step tries, starting from the best so far. method: narrows a step down to what was asked for."""
    if step == "clip":
        asked = [clip for clip in CLIPS if method in ("auto", f"clip-{clip}")]
        return [replace(base, ranges=clip) for clip in asked]
    if step == "equalize":
        both = replace(base, prepare="equalize", bias=True)
        return [replace(base, bias=True), both] if method == "auto" else [both]
    if step == "smooth":
        return [replace(base, prepare="smooth")]
    return [replace(base, learn=True, bias=True)] if step == "round" else []


def base_scheme(*, saturates: bool) -> Scheme:
    """The scheme that a step fixed by hand starts from: 7-bit weights where this CPU's sums overflow."""
    name = "u8s8-channel-reduced" if saturates else "u8s8-channel"
    return next(scheme for scheme in SCHEMES if scheme.name == name)
