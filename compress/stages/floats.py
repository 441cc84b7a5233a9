"""What a stage starts from: the float model, or a float candidate that a stage before it made."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from compress.candidate import Candidate
from compress.files import digest_of
from compress.recipe.spec import MODEL, Stage
from compress.stages.baseline import FloatModel
from compress.stages.context import Context
from compress.store import Entry


def missing_start(spec: Stage, found: Sequence[Candidate]) -> str:
    """Why the stage has nothing to start from; empty when it has."""
    if spec.from_ in (None, MODEL) or _named(spec, found) is not None:
        return ""
    return f"{spec.from_} made no candidate to start from"


def start_of(
    context: Context, spec: Stage, model: FloatModel, found: Sequence[Candidate]
) -> tuple[Context, FloatModel]:
    """The context and the float file for a stage, whose `from` names a candidate that `missing_start` knows."""
    one = _named(spec, found)
    if one is None:
        return context, model
    folder = Path(str(one.artefact)).parent
    entry = Entry(path=folder, digest=context.store.digest_at(folder), facts={}, seconds=0.0, cached=True)
    start = FloatModel(
        path=folder / "model.onnx", entry=entry, parity=one.parity or {}, name=one.name, reference=model.path
    )
    return narrow_context(context, entry), start


def narrow_context(context: Context, entry: Entry) -> Context:
    """The context of a stage that starts from a model with fewer channels: its module, under a digest of its own."""
    from compress.prune.replay import load_

    inputs = context.inputs
    module = copy.deepcopy(inputs.model)
    load_(module, entry.path)
    digest = digest_of([inputs.model_digest, entry.digest])
    return replace(context, inputs=replace(inputs, model=module, model_digest=digest))


def _named(spec: Stage, found: Sequence[Candidate]) -> Candidate | None:
    return next((one for one in found if one.name == spec.from_ and one.form == "float" and one.artefact), None)
