"""Measured ceilings: what this machine can compute, move and start per second. See docs/design/ceilings.md."""

from compress.measure.ceilings.ask import measure_ceilings
from compress.measure.ceilings.parts import FULL, QUICK, Effort

__all__ = ["FULL", "QUICK", "Effort", "measure_ceilings"]
