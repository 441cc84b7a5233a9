"""Stages: each turns a candidate into others. One function each, one literal table."""

from collections.abc import Callable
from typing import Any

from compress.candidate import Candidate
from compress.recipe.spec import Prune, Ptq, Qat
from compress.stages import prune, prune_train, ptq, qat, qat_train

# What can be known to fail before anything is started.
CHECKS: dict[type[Any], Callable[..., None]] = {Qat: qat_train.check, Prune: prune_train.check}
STAGES: dict[type[Any], Callable[..., list[Candidate]]] = {Ptq: ptq.run, Qat: qat.run, Prune: prune.run}
