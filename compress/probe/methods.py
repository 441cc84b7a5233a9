"""What can be probed. Pure data."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["static", "dynamic", "weights", "prune", "depth", "batch"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """One thing to try. amount: share of the channels pruned, bits of a weight, or samples of a batch."""

    kind: Kind
    amount: float = 0.0


METHODS: dict[str, Method] = {
    "int8": Method(kind="static"),
    "dynamic-int8": Method(kind="dynamic"),
    "weights-int8": Method(kind="weights", amount=8),
    "weights-int4": Method(kind="weights", amount=4),
    "prune-25": Method(kind="prune", amount=0.25),
    "prune-50": Method(kind="prune", amount=0.5),
    "prune-75": Method(kind="prune", amount=0.75),
    # A student of half the width has the shapes of the model with half its channels pruned.
    "half-width": Method(kind="prune", amount=0.5),
    "half-depth": Method(kind="depth"),
    "batch-8": Method(kind="batch", amount=8),
    "batch-32": Method(kind="batch", amount=32),
}
