"""Analyze an ONNX file: counted as it is, timed as it is."""

from pathlib import Path
from typing import Any

from compress.analyze.onnx_load import open_model
from compress.analyze.onnx_table import table_from_onnx
from compress.errors import CompressError, InputError
from compress.stages.question import Question, Say
from compress.stages.sample_inputs import InputSpec, made_up, named
from compress.stages.timed_file import judged_file
from compress.stages.verdict import ceilings_for, judged_or_counted, noted

RANDOM = "timed on random inputs"
# What ONNX calls the types that NumPy calls otherwise.
NUMPY_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


def analyze_onnx(path: Path, question: Question, say: Say) -> dict[str, Any]:
    """`compress.analysis/1` of an ONNX file, with times of its kernels where they were asked for and could be had."""
    model = open_model(path)
    declared = declared_inputs(model)
    specs = specs_of(path, declared, question)
    table = table_from_onnx(path, shapes={name: list(spec.shape) for name, spec in specs.items()} or None)
    ceilings = ceilings_for(question, say)
    if question.timed:
        try:
            found, _ = judged_file(path, made_up(specs, table_rows(model)), question, ceilings, say)
        except CompressError as error:
            table = noted(table, f"not measured: {error}")
        else:
            return found | {"notes": [*found["notes"], RANDOM]}
    batch = next((spec.shape[0] for spec in specs.values() if spec.shape), 1)
    return judged_or_counted(table, ceilings, question.asked(batch=batch))


def declared_inputs(model: Any) -> dict[str, tuple[tuple[int | None, ...], str]]:
    """Sizes (None where open) and type of every input that is no weight, by name."""
    from onnx import TensorProto

    weights = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        if value.name not in weights:
            kind = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
            dims = value.type.tensor_type.shape.dim
            sizes = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in dims)
            found[value.name] = (sizes, NUMPY_NAMES.get(kind, kind.lower()))
    return found


def specs_of(
    path: Path, declared: dict[str, tuple[tuple[int | None, ...], str]], question: Question
) -> dict[str, InputSpec]:
    """A whole shape for every input: as given, as the file fixes it, else open sizes from batch and seq, or 1.

    Raises InputError for an unknown name, or a batch or length other than the one the file fixes.
    """
    given = named(question.shapes, list(declared), str(path))
    if question.seq is not None and not any(len(sizes) == 2 and "int" in kind for sizes, kind in declared.values()):
        raise InputError("--seq", f"no input of {path.name} is an integer array (n, tokens)", "Give --input-shape")
    found = {}
    for name, (sizes, kind) in declared.items():
        spec = given.get(name)
        shape = _shape(name, sizes, kind, question) if spec is None else spec.shape
        if spec is not None and spec.dtype is not None and spec.dtype != kind:
            raise InputError(str(path), f"input '{name}' is {kind}, not {spec.dtype}", "Leave the type out")
        if spec is not None and len(spec.shape) != len(sizes):
            fact = f"input '{name}' has {len(sizes)} sizes, {len(spec.shape)} were given"
            raise InputError(str(path), fact, "Give all of them, batch first")
        if question.batch is not None and spec is not None:
            shape = (question.batch, *shape[1:])
        found[name] = InputSpec(shape=tuple(shape), dtype=kind)
    return found


def _shape(name: str, sizes: tuple[int | None, ...], kind: str, question: Question) -> tuple[int, ...]:
    wanted = [question.batch, question.seq if len(sizes) == 2 and "int" in kind else None]
    for option, size, fixed in zip(("--batch", "--seq"), wanted, sizes, strict=False):
        if size is not None and fixed is not None and size != fixed:
            raise InputError(option, f"input '{name}' is fixed at {fixed}", "Export the model with free sizes")
    opened = [*wanted, *([None] * len(sizes))]
    return tuple(fixed or size or 1 for fixed, size in zip(sizes, opened, strict=False))


def table_rows(model: Any) -> int | None:
    """Rows of the smallest table of weights that indices look into; None where there is none."""
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    looked_up = [
        weights[node.input[0]] for node in model.graph.node if node.op_type == "Gather" and node.input[0] in weights
    ]
    return min((dims[0] for dims in looked_up if len(dims) >= 2), default=None)
