"""Ceilings of a device: the most it can compute, move and start per second. Measured here, or from a sheet.

Every figure is an upper bound that a model's time is held against, so a figure that is too low is an error and one
that is too high only makes the bound loose. FLOP/s counts two per multiply-add; integer rates are OP/s, counted alike.
Bandwidth counts the bytes an operator reads and writes, without the reads that a cache adds to a write.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from compress.errors import InputError

Source = Literal["measured on this machine", "datasheet", "formula"]
Confidence = Literal["measured", "datasheet", "known", "formula"]
MEASURED: Source = "measured on this machine"
# Preempted for more than this share of its time, a process cannot tell what the machine is able to do.
CONTAMINATED_ABOVE = 1.15
# Repeats of one figure further apart than this do not agree on it.
UNSTEADY_ABOVE = 0.20


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number with where it comes from.

    value: in the unit of the field that holds it; how: kernel and shape, or sheet; wall_over_cpu: elapsed over busy
    time; spread: (slowest - fastest) / fastest of the n repeats, None where nothing was repeated.
    """

    value: float
    how: str
    spread: float | None = None
    n: int | None = None
    wall_over_cpu: float | None = None

    @property
    def unsteady(self) -> bool:
        return self.spread is not None and self.spread > UNSTEADY_ABOVE

    @property
    def contaminated(self) -> bool:
        return self.wall_over_cpu is not None and self.wall_over_cpu > CONTAMINATED_ABOVE


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Arithmetic in one dtype: the fastest matrix product and the fastest convolution, which can differ."""

    gemm: Figure | None = None
    conv: Figure | None = None
    supported: bool = True
    slower_than_fp32: bool = False
    note: str = ""

    @property
    def best(self) -> Figure | None:
        """The roof: the faster of the two."""
        return max((one for one in (self.gemm, self.conv) if one), key=lambda one: one.value, default=None)


@dataclass(frozen=True, kw_only=True)
class Level:
    """One memory level. size_bytes: None where unknown; bytes_per_s: by kernel (read, copy, triad, gemv)."""

    name: str
    size_bytes: int | None
    bytes_per_s: dict[str, Figure]

    @property
    def best(self) -> Figure:
        return max(self.bytes_per_s.values(), key=lambda one: one.value)


@dataclass(frozen=True, kw_only=True)
class Contention:
    """How busy the machine was. wall_over_cpu: over everything timed; pressure: before and after, see device.facts."""

    wall_over_cpu: float | None
    before: dict[str, float]
    after: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Achievable:
    """Shares of a sheet's rates that good kernels reach. For expected times only, never for hard bounds."""

    gemm: float = 1.0
    bandwidth: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """What a device can do at most, with `threads` threads (None: all of it).

    flop_per_s: by dtype (fp32, tf32, bf16, fp16, fp8, int8, int4, ...); levels: nearest first, DRAM last;
    dispatch_ns: cost of starting an operator of eager torch, by class; node_ns: cost of a node of ONNX Runtime;
    moves_bytes_per_s: layout copies, read plus written; note: for sheets, the document and its trap.
    """

    name: str
    source: Source
    confidence: Confidence
    threads: int | None
    flop_per_s: dict[str, Rate]
    levels: tuple[Level, ...]
    dispatch_ns: dict[str, Figure] = field(default_factory=dict)
    node_ns: Figure | None = None
    moves_bytes_per_s: dict[str, Figure] = field(default_factory=dict)
    memory_bytes: int | None = None
    achievable: Achievable = Achievable()
    note: str = ""
    fingerprint: str | None = None
    date: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    contention: Contention | None = None
    contaminated: bool = False

    def peak(self, dtype: str) -> float | None:
        """FLOP/s (integers: OP/s) of the fastest kernel of the dtype; None where there is none or none was timed."""
        rate = self.flop_per_s.get(dtype)
        best = rate.best if rate and rate.supported else None
        return best.value if best else None

    def ratio(self, dtype: str) -> float | None:
        """Peak of the dtype over the peak of fp32: what int8 is worth here at most."""
        peak, base = self.peak(dtype), self.peak("fp32")
        return peak / base if peak and base else None

    def bandwidth(self, level: str = "dram") -> float:
        """Bytes per second of a level. Never less than that of a level further out, whose data it passes on.

        Raises InputError when the level is not known.
        """
        names = [one.name for one in self.levels]
        if level not in names:
            raise InputError(self.name, f"no memory level '{level}' is known", f"Known levels: {', '.join(names)}")
        return max(one.best.value for one in self.levels[names.index(level) :])

    def level_for(self, resident_bytes: int) -> str:
        """The level that bounds a model that keeps `resident_bytes` in use: the last cache when half of it is enough."""
        *caches, dram = self.levels
        if caches and caches[-1].size_bytes and resident_bytes <= caches[-1].size_bytes / 2:
            return caches[-1].name
        return dram.name

    def ridge(self, dtype: str) -> float | None:
        """FLOP per DRAM byte at which arithmetic in the dtype becomes the limit. Williams et al., CACM 52 (2009)."""
        peak = self.peak(dtype)
        return peak / self.bandwidth() if peak else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` takes it back."""
        from pydantic import TypeAdapter

        return dict(TypeAdapter(Ceilings).dump_python(self, mode="json"))

    @staticmethod
    def from_dict(value: Any, place: str = "ceilings") -> "Ceilings":
        """Raises InputError when `value` is not what `as_dict` writes."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(Ceilings).validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(place, f"{where}: {first['msg']}", "Measure again: compress doctor --measure") from error
