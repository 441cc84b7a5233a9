"""A torch module as one self-contained ONNX file: eval mode forced, batch axis free, names known, nothing private."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.data import SINGLE_INPUT, Array
from compress.errors import InputError
from compress.files import write_with

if TYPE_CHECKING:
    import onnx
    import torch

# Protobuf's limit for one message; larger models need external data, which this version does not write.
LARGEST_FILE_BYTES = 2**31 - 1
LEGACY_OPSET = 18


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written: the exporter used, the names of inputs and outputs, and a note when the first choice failed."""

    exporter: str
    inputs: list[str]
    outputs: list[str]
    note: str


def export_onnx(model: "torch.nn.Module", feeds: dict[str, Array], path: Path, output_names: Sequence[str]) -> Exported:
    """Write `model` to `path`. feeds: one batch (n, ...) by input name, n >= 2; outputs are named in the order given.

    The new exporter first; what it cannot take goes through the older one. Raises InputError when both refuse.
    """
    problems: list[str] = []
    with evaluating(model), tempfile.TemporaryDirectory(prefix="compress-") as folder:
        for exporter, write in (("dynamo", _export_dynamo), ("torchscript", _export_torchscript)):
            raw = Path(folder) / f"{exporter}.onnx"
            try:
                with quiet():
                    write(model, feeds, raw, list(output_names))
                _finish(raw, path)
            except InputError:
                raise
            except Exception as error:  # exporters raise whatever the user's forward raises
                problems.append(f"{exporter}: {_first_line(error)}")
                continue
            return Exported(exporter=exporter, inputs=list(feeds), outputs=list(output_names), note="; ".join(problems))
    raise InputError(
        "model.ref", f"cannot be exported to ONNX ({'; '.join(problems)})", "Simplify forward, or export it yourself"
    )


def call_arguments(feeds: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for forward: a bare array is positional, named inputs go by name."""
    if list(feeds) == [SINGLE_INPUT]:
        return (feeds[SINGLE_INPUT],), {}
    return (), dict(feeds)


def name_outputs(outputs: Any) -> dict[str, Any]:
    """Tensors that forward returned, by name: dict keys, or output / output_0, output_1, ...; None entries dropped.

    Raises InputError when there is no tensor at all.
    """
    if hasattr(outputs, "items"):
        named = {str(key): value for key, value in outputs.items()}
    elif isinstance(outputs, tuple | list):
        named = {f"output_{i}": value for i, value in enumerate(outputs)}
    else:
        named = {"output": outputs}
    tensors = {key: value for key, value in named.items() if hasattr(value, "shape")}
    if not tensors:
        raise InputError(
            "model.ref",
            f"forward returned {type(outputs).__name__} without a tensor",
            "Return a tensor, a tuple or a dict of tensors",
        )
    return tensors


def _export_dynamo(model: "torch.nn.Module", feeds: dict[str, Array], path: Path, outputs: list[str]) -> None:
    import torch

    args, kwargs = call_arguments({name: torch.from_numpy(values) for name, values in feeds.items()})
    batch = torch.export.Dim("batch", min=1, max=2**16)
    shapes: Any = ({0: batch},) if args else {name: {0: batch} for name in kwargs}
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, input_names=list(feeds), output_names=outputs,
        dynamic_shapes=shapes, dynamo=True, external_data=False, verbose=False,
    )  # fmt: skip


def export_legacy(
    model: "torch.nn.Module", feeds: dict[str, Array], output_names: Sequence[str], opset: int
) -> "onnx.ModelProto":
    """The graph of a module with quantizers inside, as the older exporter writes it: the new one refuses such modules.

    Nodes are named after their modules; nothing is folded. Raises InputError when the module cannot be exported.
    """
    import onnx

    with evaluating(model), tempfile.TemporaryDirectory(prefix="compress-") as folder:
        raw = Path(folder) / "raw.onnx"
        try:
            with quiet():
                _export_torchscript(model, feeds, raw, list(output_names), opset)
        except Exception as error:  # see export_onnx
            fact = f"cannot be exported to ONNX with its quantizers ({_first_line(error)})"
            raise InputError("model.ref", fact, "Leave layers out with `exclude`, or simplify forward") from error
        proto = onnx.load(raw)
    for node in proto.graph.node:
        node.name = _without_repeats(node.name)
    _name_nodes_(proto.graph)
    _strip_(proto)
    return proto


def _without_repeats(name: str) -> str:
    """`/body/body.0/first/first.1/Conv`, as the older exporter names what lies in sequences: `/body.0/first.1/Conv`."""
    kept: list[str] = []
    for part in name.split("/"):
        if kept and kept[-1] and part.startswith(f"{kept[-1]}."):
            kept[-1] = part
        else:
            kept.append(part)
    return "/".join(kept)


def _export_torchscript(
    model: "torch.nn.Module", feeds: dict[str, Array], path: Path, outputs: list[str], opset: int = LEGACY_OPSET
) -> None:
    import torch

    args, kwargs = call_arguments({name: torch.from_numpy(values) for name, values in feeds.items()})
    torch.onnx.export(
        model, args, str(path), kwargs=kwargs, input_names=list(feeds), output_names=outputs,
        dynamic_axes={name: {0: "batch"} for name in (*feeds, *outputs)}, dynamo=False, opset_version=opset,
    )  # fmt: skip


def _finish(raw: Path, path: Path) -> None:
    """Fold what can be folded, name nodes after their modules, drop traces of the author's machine, write one file."""
    import onnx

    proto = onnx.load(raw)
    _name_nodes_(proto.graph)
    _strip_(proto)
    if proto.ByteSize() > LARGEST_FILE_BYTES:
        raise InputError(
            "model.ref",
            f"needs {proto.ByteSize() / 1e9:.1f} GB in one file",
            "Models above 2 GB are not available in this version",
        )
    write_with(path, lambda temporary: onnx.save(fold_batch_norm(proto), str(temporary)))


def fold_batch_norm(proto: "onnx.ModelProto") -> "onnx.ModelProto":
    """Fold BatchNormalization into the convolution before it and evaluate constants, by ONNX Runtime's basic rules.

    Returns `proto` itself when there is nothing to fold: the runtime's rewriting would only shuffle names.
    """
    import onnx

    from compress.device.runtime import save_simplified

    if not any(node.op_type == "BatchNormalization" for node in proto.graph.node):
        return proto
    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        source, target = Path(folder) / "a.onnx", Path(folder) / "b.onnx"
        onnx.save(proto, str(source))
        save_simplified(source, target)
        return onnx.load(target)


def _name_nodes_(graph: "onnx.GraphProto") -> None:
    """`layer1.0.conv1/Conv`: module path from the exporter's notes and the operator, numbered where not unique."""
    seen: dict[str, int] = {}
    for node in graph.node:
        scopes = next((entry.value for entry in node.metadata_props if entry.key == "pkg.torch.onnx.name_scopes"), "")
        names = [part.strip(" '\"") for part in scopes.strip("[]").split(",")]
        module = (
            names[-2]
            if len(names) > 1
            else node.name.strip("/").rsplit("/", 1)[0].replace("/", ".")
            if "/" in node.name
            else ""
        )
        base = f"{module}/{node.op_type}" if module else node.op_type
        seen[base] = seen.get(base, 0) + 1
        node.name = base if seen[base] == 1 else f"{base}_{seen[base]}"
    _name_values_after_nodes_(graph)


def _name_values_after_nodes_(graph: "onnx.GraphProto") -> None:
    """Runtimes name fused kernels after the value they produce, so that profiles read like the model."""
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return  # inner graphs see outer names
    kept = {item.name for item in graph.output}
    new = {
        value: node.name + (f":{i}" if i else "")
        for node in graph.node
        for i, value in enumerate(node.output)
        if value and value not in kept
    }
    for node in graph.node:
        node.input[:] = [new.get(value, value) for value in node.input]
        node.output[:] = [new.get(value, value) for value in node.output]
    for item in graph.value_info:
        item.name = new.get(item.name, item.name)


def _strip_(proto: "onnx.ModelProto") -> None:
    """Stack traces and file names of the exporting machine, which also make equal models differ byte by byte."""
    proto.doc_string = ""
    proto.producer_version = ""
    del proto.metadata_props[:]
    graph = proto.graph
    graph.name, graph.doc_string = "model", ""
    del graph.metadata_props[:]
    for item in (*graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        item.doc_string = ""
        del item.metadata_props[:]


@contextmanager
def evaluating(model: "torch.nn.Module") -> Iterator[None]:
    """Every submodule in eval mode inside, each back in its own mode after."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters warn and log about their own insides; what matters comes back as an exception."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
