"""ONNX front end: the same op table from a graph, without running it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from compress.analyze import onnx_ops
from compress.analyze.caches import as_cache, cache_storages, with_caches
from compress.analyze.onnx_load import Shapes, open_model, with_shapes
from compress.analyze.table import Kind, Op, OpTable, Role, TensorInfo
from compress.analyze.traffic import traffic

_HALF_BYTE = frozenset(getattr(TensorProto, name) for name in ("INT4", "UINT4", "FLOAT4E2M1"))
# Integers that are indices and shapes rather than learned values.
_NOT_LEARNED = frozenset((TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING))
_NORMALISING = onnx_ops.SOFTMAX | {name for name in onnx_ops.REDUCTION if name.endswith("Normalization")}


def table_from_onnx(source: str | Path | onnx.ModelProto, shapes: Shapes | None = None) -> OpTable:
    """The op table of an ONNX file or model; `module` is the node's name.

    shapes: sizes of symbolic dimensions by name, or whole input shapes by input name; what stays open counts as 1 and
    is said in `notes`. Of an `If` the heavier branch counts, of a loop one round; `notes` says so.
    params counts learned initializers, so the statistics of an unfolded BatchNormalization are among them.
    Raises InputError: missing, broken or empty file, wrong rank, external data outside the model's folder.
    """
    model, notes = with_shapes(open_model(source), shapes)
    walk = _Walk(notes)
    walk.graph(model.graph)
    return walk.table(model.graph)


class _Walk:
    """Goes through a graph in order and collects rows."""

    def __init__(self, notes: list[str]) -> None:
        self.values: dict[str, TensorInfo] = {}
        self.rows: list[Op] = []
        self.notes = list(notes)
        self.unknown: Counter[str] = Counter()
        self.unknown_rows: set[int] = set()
        self.params = self.weight_bytes = self.storages = 0

    def graph(self, graph: onnx.GraphProto) -> None:
        """Every node of a graph; names from an outer graph stay visible."""
        for tensor in graph.initializer:
            self._weight(tensor, tensor.name)
        for value in (*graph.input, *graph.output):
            self._value(value, "io")
        for value in graph.value_info:
            self._value(value, "act")
        for node in graph.node:
            self._node(node)

    def table(self, graph: onnx.GraphProto) -> OpTable:
        """The finished table, caches tagged."""
        inputs = [self.values[v.name] for v in graph.input if v.name in self.values]
        inputs = [t for t in inputs if t.role != "weight"]
        outputs = [self.values[v.name] for v in graph.output if v.name in self.values]
        caches = cache_storages(self.rows, {t.storage for t in inputs})
        table = OpTable(
            source="onnx",
            ops=tuple(with_caches(op, caches) for op in self.rows),
            params=self.params,
            weight_bytes=self.weight_bytes,
            inputs=tuple(as_cache(t, caches) for t in inputs),
            outputs=tuple(as_cache(t, caches) for t in outputs),
            unknown_ops=tuple(sorted(self.unknown.items())),
            notes=tuple(self.notes),
        )
        moved = traffic(table)
        total = moved.bytes_of("U")
        lost = sum(moved.bytes_of("U", index) for index in self.unknown_rows)
        whole = 1.0 if not self.unknown_rows else 0.0
        return replace(table, coverage=1 - lost / total if total else whole)

    def _node(self, node: onnx.NodeProto) -> None:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            self._constant(node, attributes)
        elif node.op_type in ("If", "Loop", "Scan"):
            self._branches(node, attributes)
        else:
            self._row(node, attributes)

    def _row(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        domain = node.domain if node.domain not in ("", "ai.onnx") else "onnx"
        inputs = [self.values.get(name) for name in node.input]
        known = bool(node.output) and node.output[0] in self.values
        found = self._classified(node, inputs, attributes) if known else None
        kind, macs = found or ("other", 0)
        held = tuple(t for t in inputs if t is not None)
        if kind == "view" or _is_stored_weight(node, held):
            kind = "view"
            self._alias(node, held)
        outputs = tuple(self.values[name] for name in node.output if name in self.values)
        if found is None:
            self.unknown[f"{domain}::{node.op_type}"] += 1
            self.unknown_rows.add(len(self.rows))
        reads = () if kind == "view" else _gathered(held, outputs) if kind == "gather" else held
        self.rows.append(
            Op(
                id=len(self.rows),
                op=f"{domain}::{node.op_type}",
                module=node.name,
                kind=kind,
                inputs=held,
                outputs=outputs,
                reads=reads,
                writes=() if kind == "view" else outputs,
                macs=macs,
                elementwise_flops=_elementwise_flops(node.op_type, kind, held, outputs),
                causal=kind == "attention" and bool(attributes.get("is_causal") or attributes.get("unidirectional")),
                softmax=node.op_type in onnx_ops.SOFTMAX,
            )
        )

    def _classified(
        self, node: onnx.NodeProto, inputs: Sequence[TensorInfo | None], attributes: dict[str, Any]
    ) -> tuple[Kind, int] | None:
        shapes = [t.shape if t is not None else () for t in inputs]
        outputs = [self.values[name].shape for name in node.output if name in self.values]
        try:
            seen = onnx_ops.Node(
                domain=node.domain, op=node.op_type, inputs=shapes, outputs=outputs, attributes=attributes
            )
            return onnx_ops.classify(seen)
        except (IndexError, KeyError, ValueError, TypeError, ZeroDivisionError):
            return None  # A layout the formula has not met: listed as unknown rather than guessed.

    def _alias(self, node: onnx.NodeProto, held: Sequence[TensorInfo]) -> None:
        """The output of a view lives where its input does; a dequantized weight is still stored as integers."""
        if not held:
            return
        source = held[0]
        for name in node.output:
            if name in self.values and node.op_type not in ("Shape", "Size"):
                shape = self.values[name].shape
                self.values[name] = replace(source, shape=shape)

    def _branches(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Walk each inner graph on its own; keep the one with the most work."""
        bodies = [value for value in attributes.values() if isinstance(value, onnx.GraphProto)]
        start = len(self.rows)
        kept: tuple[int, list[Op], onnx.GraphProto] = (-1, [], bodies[0])
        for body in bodies:
            self.graph(body)
            rows = self.rows[start:]
            del self.rows[start:]
            work = sum(op.macs for op in rows)
            kept = (work, rows, body) if work > kept[0] else kept
        self.rows.extend(kept[1])
        self.notes.append(
            f"{node.op_type} {node.name!r}: {'heavier branch' if node.op_type == 'If' else 'one round'} counted"
        )
        # Loop bodies return their condition first.
        results = kept[2].output[1 if node.op_type == "Loop" else 0 :]
        for name, inner in zip(node.output, results, strict=False):
            if inner.name in self.values:
                self.values[name] = self.values[inner.name]

    def _constant(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        value = next(iter(attributes.values()), None)
        if isinstance(value, TensorProto):
            self._weight(value, node.output[0])
        elif value is not None and not isinstance(value, onnx.SparseTensorProto):
            array = np.atleast_1d(np.asarray(value)) if isinstance(value, list) else np.asarray(value)
            kind = TensorProto.FLOAT if array.dtype.kind == "f" else TensorProto.INT64
            self._add(node.output[0], array.shape, kind, "weight")

    def _weight(self, tensor: TensorProto, name: str) -> None:
        info = self._add(name, tuple(tensor.dims), tensor.data_type, "weight")
        if tensor.data_type not in _NOT_LEARNED and tensor.dims:
            self.params += info.numel
        self.weight_bytes += info.nbytes

    def _value(self, value: onnx.ValueInfoProto, role: Role) -> None:
        kind = value.type.tensor_type
        if value.name in self.values or not value.type.HasField("tensor_type"):
            return
        if not kind.HasField("shape") or any(not dim.HasField("dim_value") for dim in kind.shape.dim):
            return
        self._add(value.name, tuple(dim.dim_value for dim in kind.shape.dim), kind.elem_type, role)

    def _add(self, name: str, shape: tuple[int, ...], kind: int, role: Role) -> TensorInfo:
        itemsize = 0.5 if kind in _HALF_BYTE else _itemsize(kind)
        nbytes = int(prod(shape) * itemsize)
        self.values[name] = TensorInfo(
            name=name if role != "act" else "",
            shape=shape,
            dtype=TensorProto.DataType.Name(kind).lower(),
            itemsize=itemsize,
            role=role,
            storage=self.storages,
            offset=0,
            nbytes=nbytes,
            storage_bytes=nbytes,
        )
        self.storages += 1
        return self.values[name]


def _itemsize(kind: int) -> int:
    return 1 if kind == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(kind).itemsize


def _is_stored_weight(node: onnx.NodeProto, held: Sequence[TensorInfo]) -> bool:
    return node.op_type == "DequantizeLinear" and bool(held) and held[0].role == "weight"


def _gathered(held: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> tuple[TensorInfo, ...]:
    """The source shrinks to the rows that are asked for; indices are read whole."""
    if not held or not outputs:
        return tuple(held)
    wanted = int(outputs[0].numel * held[0].itemsize)
    return (replace(held[0], nbytes=min(held[0].nbytes, wanted)), *held[1:])


def _elementwise_flops(op: str, kind: Kind, held: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> int:
    if kind == "elementwise":
        return sum(t.numel for t in outputs[:1])
    return (5 if op in _NORMALISING else 1) * sum(t.numel for t in held[:1]) if kind == "reduction" else 0
