"""Ceilings of devices that are not at hand, from vendors' sheets (GPUs) or cores x clock (CPUs): see devices.yaml."""

import difflib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from compress.device.ceilings import Achievable, Ceilings, Confidence, Figure, Level, Rate, Source
from compress.errors import InputError

TABLE = Path(__file__).with_name("devices.yaml")
# Shares of the sheet that good kernels were seen to reach on H100 (torchao, float8 roofline helper); a guess elsewhere.
USUALLY_ACHIEVED = Achievable(gemm=0.78, bandwidth=0.92)

Positive = Annotated[float, Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cpu(_Strict):
    """Rates as a formula. per_cycle: FLOP (integers: OP) per cycle of one core, by dtype; ghz: sustained clock."""

    cores: Annotated[int, Field(gt=0)]
    ghz: Positive
    per_cycle: dict[str, Positive]


class Row(_Strict):
    """One device. per_s: dense FLOP/s or OP/s by dtype, or `cpu` in its place; source: the sheet and its trap."""

    name: str
    per_s: dict[str, Positive] = {}
    cpu: Cpu | None = None
    bandwidth_bytes_per_s: Positive
    memory_bytes: Positive | None
    source: str
    confidence: Literal["datasheet", "known", "formula"] = "datasheet"
    achievable: Achievable = USUALLY_ACHIEVED

    def rates(self) -> dict[str, float]:
        if self.cpu is None:
            return dict(self.per_s)
        # rate = cores x clock x operations per cycle of one core
        return {dtype: self.cpu.cores * self.cpu.ghz * 1e9 * ops for dtype, ops in self.cpu.per_cycle.items()}


def device_named(name: str) -> Ceilings:
    """The row of that name, whatever its case. Raises InputError with the names there are."""
    rows = {row.name: row for row in device_rows()}
    if name.lower() not in rows:
        # A model of a family that comes in several forms is most likely one of them.
        family = [row for row in rows if row.startswith(name.lower())]
        near = family or difflib.get_close_matches(name.lower(), list(rows), n=1)
        meant = " or ".join(f"'{one}'" for one in near)
        remedy = f"Did you mean {meant}? " if near else ""
        raise InputError(f"device {name}", "no device has this name", f"{remedy}Known: {', '.join(rows)}")
    return _ceilings(rows[name.lower()])


@cache
def device_rows() -> tuple[Row, ...]:
    """Every row of the table, in its order."""
    import yaml

    found: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return tuple(Row.model_validate(row) for row in found)


def _ceilings(row: Row) -> Ceilings:
    source: Source = "formula" if row.cpu else "datasheet"
    confidence: Confidence = "formula" if row.cpu else row.confidence
    rates = row.rates()
    bandwidth = Figure(value=row.bandwidth_bytes_per_s, how=source)
    return Ceilings(
        name=row.name,
        source=source,
        confidence=confidence,
        threads=None,
        flop_per_s={dtype: _rate(dtype, rates, source) for dtype in rates},
        levels=(Level(name="dram", size_bytes=None, bytes_per_s={"read": bandwidth}),),
        memory_bytes=int(row.memory_bytes) if row.memory_bytes else None,
        achievable=row.achievable,
        note=row.source,
    )


def _rate(dtype: str, rates: dict[str, float], source: Source) -> Rate:
    slower = rates[dtype] < rates.get("fp32", 0.0)
    return Rate(gemm=Figure(value=rates[dtype], how=source), slower_than_fp32=slower)
