"""From what a front end saw of one call to a row of the table: kind, work and what it moves. Pure Python."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from compress.analyze import cost, kinds
from compress.analyze.table import Call, Kind, Op, TensorInfo


def build_op(*, id: int, module: str, call: Call, formulas: Mapping[str, cost.Formula]) -> tuple[Op, bool]:
    """The row, and whether the op is known. An op that returns memory it was given, unchanged, is a view."""
    known = True
    if not call.mutates and _is_view(call) and call.op not in cost.FORMULAS and call.op not in formulas:
        kind: Kind = "view"
        work = 0
    else:
        found = _classified(call, formulas)
        known = found is not None
        kind, work = found or ("other", 0)
    # A shape op that shares nothing with its input has copied it, unless it had no input at all.
    kind = "move" if kind == "view" and not _is_view(call) and call.inputs else kind
    return _row(id, module, call, kind, work), known


def _classified(call: Call, formulas: Mapping[str, cost.Formula]) -> tuple[Kind, int] | None:
    try:
        return cost.classify(call, formulas)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, StopIteration):
        return None  # An argument layout the formula has not met: listed as unknown rather than guessed.


def _row(id: int, module: str, call: Call, kind: Kind, work: int) -> Op:
    scores = cost.score_elements(call) if kind == "attention" else 0
    reads, writes = _moved(call, kind)
    return Op(
        id=id,
        op=call.op,
        module=module,
        kind=kind,
        inputs=call.inputs,
        outputs=call.outputs,
        reads=reads,
        writes=writes,
        macs=work,
        elementwise_flops=cost.elementwise_flops(kind, call),
        # QK^T writes the scores, softmax reads and writes them, PV reads them.
        scratch_bytes=_whole(4 * scores * call.outputs[0].itemsize) if scores else 0,
        causal=kind == "attention" and bool(call.argument(5, "is_causal", False)),
        softmax=kinds.base_name(call.op) in kinds.SOFTMAX,
    )


def _is_view(call: Call) -> bool:
    held = {t.storage for t in call.inputs}
    return bool(held) and all(t.storage in held for t in call.outputs)


def _moved(call: Call, kind: Kind) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """What the op reads and writes."""
    name = kinds.base_name(call.op)
    if kind == "view":
        return (), ()
    if kind == "gather":
        return _gathered(call, name), call.outputs[:1] if name.endswith("embedding_bag") else call.outputs
    if call.mutates and name in kinds.SCATTER and len(call.inputs) > 1:
        source = max(call.inputs[1:], key=lambda t: (t.nbytes, t.itemsize))
        return call.inputs[1:], tuple(replace(t, nbytes=min(t.nbytes, source.nbytes)) for t in call.outputs)
    if call.mutates and name in ("copy", "fill", "zero", "normal", "uniform"):
        return call.inputs[1:], call.outputs
    return call.inputs, call.outputs


def _gathered(call: Call, name: str) -> tuple[TensorInfo, ...]:
    """The source shrinks to the rows that are asked for; indices are read whole."""
    if not call.inputs:
        return ()
    source, rest = call.inputs[0], call.inputs[1:]
    rows = prod(call.outputs[0].shape)
    if name.endswith("embedding_bag"):
        rows = prod(rest[0].shape) * source.shape[-1]
    asked = _whole(rows * source.itemsize)
    return (replace(source, nbytes=min(source.nbytes, asked) if isinstance(asked, int) else asked), *rest)


def _whole(count: Any) -> Any:
    """A whole number of bytes; expressions in free sizes stay as they are, and `symbolic` limits them itself."""
    return int(count) if isinstance(count, int | float) else count
