"""Measured ceilings: what this machine can compute, move and start per second. See docs/design/ceilings.md."""

from compress.measure.ceilings.ask import measure_ceilings
from compress.measure.ceilings.parts import FULL, Effort

__all__ = ["FULL", "Effort", "measure_ceilings"]
