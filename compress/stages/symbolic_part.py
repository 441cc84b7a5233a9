"""The closed forms of a module as a part of its analysis; that it has none is a note."""

from typing import TYPE_CHECKING, Any

from compress.analyze.table import OpTable
from compress.data import Array
from compress.export.onnx import call_arguments
from compress.stages.question import Say

if TYPE_CHECKING:
    from torch import nn

    from compress.analyze.symbolic import ClosedForm

SWEEP = (1, 2, 4, 8, 16, 32, 64)


def with_symbolic(
    document: dict[str, Any], model: "nn.Module", feeds: dict[str, Array], table: OpTable, say: Say
) -> dict[str, Any]:
    """The document with `symbolic`: expressions and their values over batches, or null and a note.

    Integer inputs (n, tokens) are free in their second axis as well. Forms that differ from the trace at its own sizes
    are not shown.
    """
    from compress.analyze.symbolic import NotSymbolic, closed_form

    if table.error:
        return document | {"symbolic": None}
    say("counting in symbols")
    args, kwargs = call_arguments(_tensors(feeds, model))
    rows = [name for name, values in feeds.items() if values.ndim == 2 and values.dtype.kind == "i"]
    names = tuple("0" for _ in rows) if args else tuple(rows)
    length = feeds[rows[0]].shape[1] if rows else None
    try:
        form = closed_form(model, args, kwargs, sequence=names)
        found = form.at(len(next(iter(feeds.values()))), length)
    except NotSymbolic as error:
        return _without(document, str(error))
    except (TypeError, ValueError, IndexError) as error:
        return _without(document, f"{type(error).__name__}: {error}")
    if found["macs"] != table.macs:
        return _without(document, f"the exported graph does {found['macs']:,} macs, the traced module {table.macs:,}")
    return document | {"symbolic": _as_dict(form, length)}


def _as_dict(form: "ClosedForm", length: int | None) -> dict[str, Any]:
    symbol = length if "s" in form.symbols else None
    return {
        "macs": str(form.macs),
        "unfused_bytes": str(form.unfused_bytes),
        "compulsory_bytes": str(form.compulsory_bytes),
        "symbols": list(form.symbols),
        "sweep": [{"b": batch, "s": symbol, **form.at(batch, symbol)} for batch in SWEEP],
    }


def _without(document: dict[str, Any], why: str) -> dict[str, Any]:
    return document | {"symbolic": None, "notes": [*document["notes"], f"no closed form in the batch: {why}"]}


def _tensors(feeds: dict[str, Array], model: "nn.Module") -> dict[str, Any]:
    import torch

    device = next((one.device for one in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return {name: torch.from_numpy(values).to(device) for name, values in feeds.items()}
