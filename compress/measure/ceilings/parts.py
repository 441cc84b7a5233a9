"""What a measuring process is asked and what it answers: plain data, so that it can cross a pipe."""

from dataclasses import dataclass, field
from typing import Any

from compress.device.ceilings import Figure, Level


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How hard to try. repeat_seconds: at least this long for each of `repeats`; call_seconds: no longer call is made.

    sizes: rows and columns of square products; largest_bytes: cap on the working set of the bandwidth sweep.
    """

    repeats: int = 5
    repeat_seconds: float = 0.02
    call_seconds: float = 0.4
    sizes: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)
    largest_bytes: int = 4 << 30


FULL = Effort()
# Enough for a verdict: the best of fewer sizes and repeats, working sets still far beyond the last cache.
QUICK = Effort(repeats=3, repeat_seconds=0.01, call_seconds=0.2, sizes=(256, 512, 1024), largest_bytes=1 << 30)


@dataclass(frozen=True, kw_only=True)
class Product:
    """A measured rate of a matrix product or convolution. kind: gemm or conv; figure: FLOP/s, for integers OP/s."""

    dtype: str
    kind: str
    figure: Figure


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one process found. refused: by dtype, why there is no kernel; wall_s, busy_s: over everything timed."""

    products: list[Product] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    levels: list[Level] = field(default_factory=list)
    dispatch_ns: dict[str, Figure] = field(default_factory=dict)
    node_ns: Figure | None = None
    moves_bytes_per_s: dict[str, Figure] = field(default_factory=dict)
    wall_s: float = 0.0
    busy_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        from pydantic import TypeAdapter

        return dict(TypeAdapter(Part).dump_python(self, mode="json"))

    @staticmethod
    def from_dict(value: Any) -> "Part":
        from pydantic import TypeAdapter

        return TypeAdapter(Part).validate_python(value)
