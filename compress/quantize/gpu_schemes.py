"""The ways to quantize for a GPU, cheap to dear. Pure data: the library's own name says what each one does.

A file of Q/DQ pairs is fast on a GPU only where the provider fuses them into kernels that the GPU has, and which it has
depends on its compute capability.
"""

from dataclasses import dataclass

Capability = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class GpuScheme:
    """config: name of the configuration in modelopt.torch.quantization; opset: the lowest that has its Q/DQ type.

    providers: those of the recipe's target that can gain by it; capability: least CUDA compute capability with tensor
    cores for it (CUDA C++ Programming Guide, table of compute capabilities); linear_only: for matrix products.
    """

    name: str
    config: str
    opset: int
    providers: tuple[str, ...]
    capability: Capability
    linear_only: bool = False


GPU_SCHEMES = (
    GpuScheme(
        name="int8-default", config="INT8_DEFAULT_CFG", opset=18, providers=("cuda", "tensorrt"), capability=(7, 5)
    ),
    GpuScheme(
        name="int8-smoothquant",
        config="INT8_SMOOTHQUANT_CFG",
        opset=18,
        providers=("cuda", "tensorrt"),
        capability=(7, 5),
        linear_only=True,
    ),
    GpuScheme(name="fp8-default", config="FP8_DEFAULT_CFG", opset=19, providers=("tensorrt",), capability=(8, 9)),
    GpuScheme(name="nvfp4-default", config="NVFP4_DEFAULT_CFG", opset=19, providers=("tensorrt",), capability=(10, 0)),
)


def gpu_scheme_names() -> list[str]:
    return [scheme.name for scheme in GPU_SCHEMES]


def asked_for(method: str) -> list[GpuScheme]:
    """The schemes of a recipe's `method`: all of them for `auto`, or the one of that name."""
    return [scheme for scheme in GPU_SCHEMES if method in ("auto", scheme.name)]


def why_not(scheme: GpuScheme, *, provider: str, capability: Capability | None, linear: bool) -> str:
    """Why the scheme is not worth a try on this target; empty when it is.

    capability: of the GPU, None where the driver does not tell; linear: whether the net is mostly matrix products.
    """
    if provider not in scheme.providers:
        return f"provider {provider} has no kernels for it; {' and '.join(scheme.providers)} have"
    if scheme.linear_only and not linear:
        return "it moves outliers into the weights of matrix products, and this net is mostly convolutions"
    needed = "{}.{}".format(*scheme.capability)
    if capability is None:
        return f"it needs compute capability {needed}, and the driver does not tell what this GPU has"
    if capability < scheme.capability:
        return f"it needs compute capability {needed}, and this GPU has {'{}.{}'.format(*capability)}"
    return ""
