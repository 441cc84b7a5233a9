"""Open an ONNX file without trusting it, and give every value a shape."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner

from compress.analyze.onnx_shadow import infer_shapes
from compress.errors import InputError

Shapes = Mapping[str, int | Sequence[int]]


def open_model(source: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model. Weights in other files stay there; their paths are checked first.

    Raises InputError for a file that is missing, broken, empty, or refers to data outside its own folder.
    """
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        place = model.graph.name or "onnx model"
    else:
        place = str(source)
        model = _read(Path(source))
        _check_external_data(model, Path(source))
    if not model.graph.node:
        raise InputError(place, "the ONNX graph has no nodes", "Export the model again")
    return model


def with_shapes(model: onnx.ModelProto, shapes: Shapes | None) -> tuple[onnx.ModelProto, list[str]]:
    """The model with symbolic dimensions bound and shapes inferred, and notes on what was assumed.

    shapes: sizes by dimension name, or whole shapes by input name. Dimensions nobody binds become 1.
    """
    if model.functions:
        model = inliner.inline_local_functions(model)
    notes = _bind(model, dict(shapes or {}))
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return infer_shapes(model), notes


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
                yield from graphs(inner)


def _read(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise InputError(str(path), "no such file", "Give the path of an .onnx file") from None
    except (DecodeError, OSError, ValueError) as problem:
        raise InputError(str(path), f"not a readable ONNX file ({problem})", "Export the model again") from None


def _check_external_data(model: onnx.ModelProto, path: Path) -> None:
    folder = path.parent.resolve()
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        fact = _unsafe(folder, location)
        if fact:
            raise InputError(str(path), f"external data {location!r} of {tensor.name!r} {fact}", _REMEDY)
        if tensor.data_type == onnx.TensorProto.INT64:  # May be the shape of a reshape.
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))


_REMEDY = "Save the weights as a plain file beside the model"


def _unsafe(folder: Path, location: str) -> str:
    """Why a location may not be opened, or an empty string."""
    parts = Path(location).parts
    if not location or Path(location).is_absolute() or ".." in parts or "\\" in location:
        return "is not a relative path inside the model's folder"
    target = folder.joinpath(*parts)
    try:
        found = os.lstat(target)
    except OSError:
        return "does not exist"
    if not stat.S_ISREG(found.st_mode) or target.resolve() != target:
        return "is a link or not a regular file"
    return "" if found.st_nlink == 1 else "has more than one name on the disk"


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    nodes = [node for function in model.functions for node in function.node]
    for graph in graphs(model.graph):
        yield from graph.initializer
        nodes.extend(graph.node)
    for node in nodes:
        for attribute in node.attribute:
            yield from (*attribute.tensors, *((attribute.t,) if attribute.HasField("t") else ()))


def _bind(model: onnx.ModelProto, shapes: dict[str, int | Sequence[int]]) -> list[str]:
    notes = []
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in weights:
            continue
        given = shapes.get(value.name)
        dims = value.type.tensor_type.shape.dim
        if isinstance(given, Sequence) and len(given) != len(dims):
            raise InputError(
                value.name, f"has {len(dims)} dimensions, the shape given {len(given)}", "Give one size each"
            )
        for axis, dim in enumerate(dims):
            if dim.HasField("dim_value") and dim.dim_value > 0 and not isinstance(given, Sequence):
                continue
            size = given[axis] if isinstance(given, Sequence) else shapes.get(dim.dim_param)
            if size is None:
                notes.append(f"{value.name}[{axis}] ({dim.dim_param or 'unnamed'}) is open; counted as 1")
            dim.dim_value = size if isinstance(size, int) else 1
    return notes
