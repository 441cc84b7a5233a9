"""Activation ranges: calibration that streams, with a fixed amount of memory whatever the number of samples."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.data import Array, Split
from compress.errors import InputError

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData

CALIBRATION_BATCH = 16
# Attention masks are built from constants such as -3.4e38, -65504 or -10000; no activation worth 8 bits does that.
MASK_MAGNITUDE = 9_999.0


@dataclass(frozen=True, kw_only=True)
class Observed:
    """extremes: (low, high) by tensor; unseen: tensors that never held a value, so that nothing is known of them."""

    extremes: dict[str, tuple[float, float]]
    unseen: tuple[str, ...] = ()


def calibrate(
    path: Path, split: Split, op_types: Sequence[str], on_batch: Callable[[int, int], None] = lambda _done, _total: None
) -> "TensorsData":
    """MinMax ranges of every tensor that quantizing `op_types` needs, as the quantizer takes them; see `observe`."""
    return as_tensors_data(observe(path, split, op_types, on_batch).extremes)


def observe(path: Path, split: Split, op_types: Sequence[str], on_batch: Callable[[int, int], None]) -> Observed:
    """Extremes of every tensor that quantizing `op_types` needs, over `split`.

    Batches go through one at a time and only their extremes are kept. Raises InputError when a range is not finite.
    """
    from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

    with tempfile.TemporaryDirectory(prefix="compress-") as folder:
        calibrator = create_calibrator(
            path,
            list(op_types),
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=CalibrationMethod.MinMax,
        )
        calibrator.set_execution_providers(["CPUExecutionProvider"])
        done = 0
        for inputs, labels in split.batches(CALIBRATION_BATCH):
            calibrator.collect_data(OneBatch(inputs))
            done += len(labels)
            on_batch(done, len(split))
        ranges = calibrator.compute_data()
    found = {name: range_of(ranges, name) for name in sorted(ranges.keys())}
    # The extremes of nothing are +inf and -inf.
    seen = {name: ends for name, ends in found.items() if ends is not None and not ends[0] > ends[1]}
    _check_ranges(seen)
    return Observed(extremes=seen, unseen=tuple(name for name in found if name not in seen))


def as_tensors_data(extremes: Mapping[str, tuple[float, float]]) -> "TensorsData":
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData

    ends = {name: (np.float32(low), np.float32(high)) for name, (low, high) in extremes.items()}
    return TensorsData(
        CalibrationMethod.MinMax, {name: (np.array(low), np.array(high)) for name, (low, high) in ends.items()}
    )


class OneBatch:
    """A calibration reader of a single batch: inputs by name, each (n, ...)."""

    def __init__(self, inputs: dict[str, Array]) -> None:
        self._left: list[dict[str, Array]] = [inputs]

    def get_next(self) -> dict[str, Array] | None:
        return self._left.pop() if self._left else None


def range_of(ranges: "TensorsData", tensor: str) -> tuple[float, float] | None:
    """(low, high) of a tensor, or None when it was not observed."""
    if tensor not in ranges:
        return None
    low, high = ranges[tensor].range_value
    return float(np.min(low)), float(np.max(high))


def mask_nodes(path: Path, ranges: "TensorsData") -> list[str]:
    """Names of nodes that touch an attention-mask constant or what is computed from it by Add, Sub, Mul, Where, Expand.

    Their ranges would be as wide as the constant (scale 1e36 for -3.4e38), which leaves nothing of the values there.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    huge = {item.name for item in graph.initializer if _is_huge(numpy_helper.to_array(item))}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t") and _is_huge(numpy_helper.to_array(attribute.t)):
                huge |= set(node.output)
    return [
        node.name for node in graph.node if any(_beyond(name, huge, ranges) for name in (*node.input, *node.output))
    ]


def _beyond(tensor: str, huge: set[str], ranges: "TensorsData") -> bool:
    found = range_of(ranges, tensor)
    return tensor in huge or (found is not None and max(abs(found[0]), abs(found[1])) >= MASK_MAGNITUDE)


def _is_huge(values: Any) -> bool:
    values = np.asarray(values)
    return bool(values.dtype.kind == "f" and values.size and np.abs(values).max() >= MASK_MAGNITUDE)


def _check_ranges(extremes: Mapping[str, tuple[float, float]]) -> None:
    for tensor, ends in extremes.items():
        if not np.isfinite(ends).all():
            raise InputError(
                f"tensor '{tensor}'",
                f"its range over the calibration split is [{ends[0]}, {ends[1]}]",
                "The model overflows on this data; mend the data or the model",
            )
