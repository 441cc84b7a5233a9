"""What PTQ makes, each a store entry keyed on everything it depends on: prepared float files, ranges, codes, files."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.analyze.onnx_table import table_from_onnx
from compress.code import code_digest
from compress.data import Split
from compress.quantize.graph import load_graph, save_graph
from compress.quantize.histogram import Histogram, clipped_range, collect, is_stretched
from compress.quantize.ort import op_types_for, quantize_dynamic, quantize_static
from compress.quantize.prepare import prepare
from compress.quantize.ranges import Observed, as_tensors_data, mask_nodes, observe
from compress.quantize.schemes import LINEAR_HEAVY, WeightScheme
from compress.quantize.ways import Prepare, Way
from compress.recipe.spec import Ptq
from compress.stages.baseline import FloatModel
from compress.stages.context import Context, read_array, relative_progress, runtime_versions, write_array
from compress.store import Entry, Key

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

    from compress.quantize.adjust import Adjusted

LINEAR_OPS = frozenset({"onnx::MatMul", "onnx::Gemm"})
# Samples that learned rounding, bias correction and 4-bit codes look at: moments settle long before ranges do.
MOMENT_SAMPLES = 256
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Source:
    """The float file of a stage and what is found out about it once for all ways."""

    context: Context
    spec: Ptq
    model: FloatModel

    @property
    def label(self) -> str:
        return self.model.label(self.spec.label)

    @cached_property
    def linear_share(self) -> float:
        return linear_share(self.model.path)

    @property
    def linear_heavy(self) -> bool:
        return self.linear_share >= LINEAR_HEAVY

    @property
    def op_types(self) -> tuple[str, ...]:
        return op_types_for(linear_heavy=self.linear_heavy)

    @property
    def calibration(self) -> Split:
        return self.context.inputs.splits["calibration"]

    def progress(self, text: str) -> Progress:
        return relative_progress(self.context.listener, text)


def linear_share(path: Path) -> float:
    """Share of the multiply-accumulates of an ONNX file that are matrix products."""
    ops = table_from_onnx(path).ops
    total = sum(op.macs for op in ops)
    return sum(op.macs for op in ops if op.op in LINEAR_OPS) / total if total else 0.0


def way_key(context: Context, spec: Ptq, model_digest: str, way: Way) -> Key:
    """What a quantized file depends on; the same wherever it is made."""
    modules = {
        "prepare": bool(way.prepare),
        "histogram": way.ranges != "minmax",
        "adjust": way.learn or way.bias,
    }
    return _base_key(context, model_digest) | {
        "way": way.as_dict(),
        "exclude": sorted(spec.exclude),
        "code": code_digest("compress.quantize.ort"),
        "ranges": code_digest("compress.quantize.ranges"),
        "modules": {name: code_digest(f"compress.quantize.{name}") for name, used in modules.items() if used},
    }


def make_file(source: Source, way: Way) -> Entry:
    """The quantized file of a way, from the store or made: `model.onnx`, and what is to be said about it."""
    context = source.context

    def make(folder: Path) -> dict[str, Any]:
        target = folder / "model.onnx"
        if way.scheme.kind == "dynamic":
            context.listener.update(0, 1, f"{way.name}: quantizing")
            quantize_dynamic(source.model.path, target, way.scheme, source.spec.exclude)
            return {"masks": [], "exclude": list(source.spec.exclude), "remarks": []}
        return _make_static(source, way, target)

    return context.store.obtain("ptq", way_key(context, source.spec, source.model.entry.digest, way), make)


def make_weight_only(source: Source, scheme: WeightScheme) -> Entry:
    """A file with integer weights and float activations."""
    from compress.quantize.weight_only import quantize_weights

    def make(folder: Path) -> dict[str, Any]:
        split = source.calibration.take(MOMENT_SAMPLES)
        left = quantize_weights(source.model.path, folder / "model.onnx", scheme, split, source.progress(scheme.name))
        remarks = [f"{len(left)} weights left in float: {'; '.join(left[:3])}"] if left else []
        return {"masks": [], "exclude": [], "remarks": remarks}

    key = _base_key(source.context, source.model.entry.digest) | {
        "scheme": asdict(scheme),
        "code": code_digest("compress.quantize.weight_only"),
    }
    return source.context.store.obtain("ptq", key, make)


def prepared(source: Source, how: Prepare) -> Entry:
    """The float file after equalisation or smoothing; its facts say what was done. The exported file itself for ''."""
    if not how:
        return source.model.entry

    def make(folder: Path) -> dict[str, Any]:
        source.context.listener.update(0, 1, f"{how}: preparing the float file")
        return prepare(source.model.path, folder / "model.onnx", how, source.calibration)

    key = _base_key(source.context, source.model.entry.digest) | {
        "how": how,
        "code": code_digest("compress.quantize.prepare"),
    }
    return source.context.store.obtain("prepare", key, make)


def observed(source: Source, how: Prepare) -> Observed:
    """Exact extremes of every tensor over the calibration split."""
    entry = prepared(source, how)

    def make(folder: Path) -> dict[str, Any]:
        found = observe(entry.path / "model.onnx", source.calibration, source.op_types, source.progress("calibrating"))
        write_array(folder, "ends", np.array(list(found.extremes.values()), dtype=np.float64).reshape(-1, 2))
        return {"tensors": list(found.extremes), "unseen": list(found.unseen)}

    key = _base_key(source.context, entry.digest) | {
        "op_types": list(source.op_types),
        "code": code_digest("compress.quantize.ranges"),
    }
    made = source.context.store.obtain("ranges", key, make)
    ends = read_array(made.path, "ends").tolist()
    pairs = {name: (low, high) for name, (low, high) in zip(made.facts["tensors"], ends, strict=True)}
    return Observed(extremes=pairs, unseen=tuple(made.facts["unseen"]))


def histograms(source: Source, how: Prepare) -> dict[str, Histogram]:
    """A histogram of every tensor over the calibration split."""
    entry, known = prepared(source, how), observed(source, how)

    def make(folder: Path) -> dict[str, Any]:
        path = entry.path / "model.onnx"
        found = collect(path, source.calibration, known.extremes, source.progress("histograms"))
        write_array(folder, "counts", np.array([one.counts for one in found.values()]))
        return {"tensors": list(found)}

    key = _base_key(source.context, entry.digest) | {
        "op_types": list(source.op_types),
        "code": code_digest("compress.quantize.histogram"),
        "ranges": code_digest("compress.quantize.ranges"),
    }
    made = source.context.store.obtain("histograms", key, make)
    rows = zip(made.facts["tensors"], read_array(made.path, "counts"), strict=True)
    return {
        name: Histogram(low=known.extremes[name][0], high=known.extremes[name][1], counts=counts)
        for name, counts in rows
    }


def ranges_of(source: Source, way: Way) -> "tuple[TensorsData, list[str]]":
    """Ranges as the quantizer takes them, and the tensors whose range the clipping left out most of."""
    if way.ranges == "minmax":
        return as_tensors_data(observed(source, way.prepare).extremes), []
    method = way.ranges
    found = histograms(source, way.prepare)
    stretched = sorted(
        (name for name, one in found.items() if is_stretched(one)), key=lambda name: -found[name].magnitude
    )
    return as_tensors_data({name: clipped_range(one, method) for name, one in found.items()}), stretched


def _make_static(source: Source, way: Way, target: Path) -> dict[str, Any]:
    path = prepared(source, way.prepare).path / "model.onnx"
    ranges, stretched = ranges_of(source, way)
    source.context.listener.update(0, 1, f"{way.name}: quantizing")
    known = observed(source, way.prepare)
    # Masks are found by the range of what they touch, so clipped ranges would hide them.
    masks = mask_nodes(path, as_tensors_data(known.extremes))
    unseen = [node.name for node in load_graph(path).proto.graph.node if {*node.input, *node.output} & {*known.unseen}]
    exclude = [*source.spec.exclude, *masks, *unseen, *way.keep_float]
    quantize_static(path, target, way.scheme, ranges, source.op_types, exclude)
    remarks = _remarks(way, prepared(source, way.prepare).facts, stretched, unseen)
    if way.learn or way.bias:
        remarks += adjust_(source, way, path, target)
    return {"masks": masks, "exclude": exclude, "remarks": remarks}


def adjust_(source: Source, way: Way, path: Path, target: Path) -> list[str]:
    """Put learned codes and corrected biases into the file. They do not depend on ranges, so they are learned once."""
    from compress.quantize.adjust import apply_

    adjusted, left = _adjusted(source, way)
    graph = load_graph(target)
    shifted = apply_(graph, load_graph(path), adjusted, bias=way.bias)
    save_graph(graph, target)
    remarks = [f"biases of {shifted} layers corrected"] if way.bias else []
    if way.learn and adjusted:
        losses = sorted(one.loss_left for one in adjusted.values())
        remarks.append(
            f"rounding learned for {len(adjusted)} layers, median layer error x{losses[len(losses) // 2]:.2f}"
        )
    return remarks + ([f"{len(left)} layers not adjusted: {'; '.join(left[:3])}"] if left else [])


def _adjusted(source: Source, way: Way) -> "tuple[dict[str, Adjusted], list[str]]":
    from compress.quantize.adjust import Adjusted, adjust

    entry = prepared(source, way.prepare)
    plain = Way(scheme=way.scheme, prepare=way.prepare)

    def make(folder: Path) -> dict[str, Any]:
        quantized = make_file(source, plain).path / "model.onnx"
        split = source.calibration.take(MOMENT_SAMPLES)
        text = "learned rounding" if way.learn else "bias correction"
        found, left = adjust(
            entry.path / "model.onnx", quantized, split, learn=way.learn, on_layer=source.progress(text)
        )
        for number, one in enumerate(found.values()):
            write_array(folder, f"codes{number}", one.codes)
            write_array(folder, f"shift{number}", one.shift)
        return {"left": left, "layers": list(found), "losses": [one.loss_left for one in found.values()]}

    key = _base_key(source.context, entry.digest) | {
        "scheme": asdict(way.scheme),
        "learn": way.learn,
        "exclude": sorted(source.spec.exclude),
        "code": code_digest("compress.quantize.adjust"),
    }
    made = source.context.store.obtain("adjust", key, make)
    found = {
        name: Adjusted(
            codes=read_array(made.path, f"codes{number}"), shift=read_array(made.path, f"shift{number}"), loss_left=loss
        )
        for number, (name, loss) in enumerate(zip(made.facts["layers"], made.facts["losses"], strict=True))
    }
    return found, made.facts["left"]


def _remarks(way: Way, facts: dict[str, Any], stretched: list[str], unseen: list[str]) -> list[str]:
    remarks = [str(remark) for remark in facts.get("remarks", [])] if way.prepare else []
    if stretched:
        remarks.append(f"outliers clipped in {len(stretched)} tensors: {', '.join(stretched[:3])}")
    if unseen:
        remarks.append(f"never executed on calibration data, left in float: {', '.join(unseen[:5])}")
    return remarks


def _base_key(context: Context, digest: str) -> Key:
    return {
        "source": digest,
        "calibration": context.inputs.splits.digests["calibration"],
        "versions": runtime_versions(),
    }
