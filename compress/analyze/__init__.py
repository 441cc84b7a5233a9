"""Decide before you start: what a model costs, where its time can go, and what compression could give."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compress.analyze.cost import Formula
    from compress.analyze.table import OpTable


def count(model: Any, inputs: Any, *, formulas: "Mapping[str, Formula] | None" = None) -> "OpTable":
    """Parameters, work and bytes of a torch model on one sample input; see `trace.count`."""
    from compress.analyze import trace

    return trace.count(model, inputs, formulas=formulas)
