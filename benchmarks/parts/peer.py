"""Quantize one file with one tool, in that tool's own environment. Called by benchmarks/peers.py:

python peer.py TOOL FOLDER

FOLDER holds model.onnx, calibration.npz (input name to (n, ...)), select.npz (the same, and `labels`) and task.json
{max_drop, transformer}. Writes quantized.onnx and done.json {seconds}: what the tool itself took, without imports.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Feeds = dict[str, np.ndarray]
BATCH = 50


def main(tool: str, folder: Path) -> None:
    task = json.loads((folder / "task.json").read_text())
    seconds = TOOLS[tool](folder, task)
    (folder / "done.json").write_text(json.dumps({"seconds": seconds}))


def onnxruntime_default(folder: Path, _task: dict[str, Any]) -> float:
    """`quant_pre_process`, then `quantize_static` with nothing chosen."""
    from onnxruntime.quantization import quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    reader = _reader(folder)
    started = time.perf_counter()
    quant_pre_process(str(folder / "model.onnx"), str(folder / "prepared.onnx"))
    quantize_static(str(folder / "prepared.onnx"), str(folder / "quantized.onnx"), reader)
    return time.perf_counter() - started


def nncf_accuracy_control(folder: Path, task: dict[str, Any]) -> float:
    import nncf
    import onnx

    model = onnx.load(str(folder / "model.onnx"))
    feeds, validation = _rows(_read(folder, "calibration")), _read(folder, "select")
    labels = validation.pop("labels")
    items = list(zip(_rows(validation), labels, strict=True))
    started = time.perf_counter()
    quantized = nncf.quantize_with_accuracy_control(
        model,
        nncf.Dataset(feeds),
        nncf.Dataset(items, lambda item: item[0]),
        _validate_nncf,
        max_drop=task["max_drop"],
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if task["transformer"] else None,
    )
    onnx.save(quantized, str(folder / "quantized.onnx"))
    return time.perf_counter() - started


def neural_compressor(folder: Path, task: dict[str, Any]) -> float:
    """`autotune` over per-channel and per-tensor static quantization, SmoothQuant before them for a transformer."""
    import onnx
    from onnx_neural_compressor.quantization import config, tuning

    validation = _read(folder, "select")
    labels = validation.pop("labels")

    def accuracy(path: Any) -> float:
        return _accuracy(path if isinstance(path, str | Path) else path.SerializeToString(), validation, labels)

    reader = _reader(folder)
    ways: list[Any] = [config.StaticQuantConfig(per_channel=True), config.StaticQuantConfig()]
    if task["transformer"]:
        ways = [config.SmoothQuantConfig(alpha=0.5), *ways]
    started = time.perf_counter()
    best = tuning.autotune(
        model_input=str(folder / "model.onnx"),
        tune_config=tuning.TuningConfig(config_set=ways, tolerable_loss=task["max_drop"]),
        eval_fn=accuracy,
        calibration_data_reader=reader,
    )
    seconds = time.perf_counter() - started
    if best is None:
        raise SystemExit("autotune found no model within the loss that was allowed")
    onnx.save(best, str(folder / "quantized.onnx"))
    return seconds


def compress_step(folder: Path, _task: dict[str, Any]) -> float:
    """What `quantize_static` does, as the ptq stage does it: ranges over the same samples, one per-tensor file."""
    from compress.data import Split
    from compress.quantize.ort import op_types_for, quantize_static
    from compress.quantize.ranges import calibrate, mask_nodes
    from compress.quantize.schemes import LINEAR_HEAVY, SCHEMES
    from compress.stages.ptq_files import linear_share

    feeds, source = _read(folder, "calibration"), folder / "model.onnx"
    count = len(next(iter(feeds.values())))
    split = Split("calibration", (feeds, np.zeros(count)), np.arange(count))
    scheme = next(one for one in SCHEMES if one.name == "u8s8-tensor")
    started = time.perf_counter()
    op_types = op_types_for(linear_heavy=linear_share(source) >= LINEAR_HEAVY)
    ranges = calibrate(source, split, op_types)
    quantize_static(source, folder / "quantized.onnx", scheme, ranges, op_types, mask_nodes(source, ranges))
    return time.perf_counter() - started


def _validate_nncf(model: Any, items: Any) -> tuple[float, list[float]]:
    session = _session(model.SerializeToString())
    right = [float(session.run(None, feeds)[0].argmax(-1)[0] == label) for feeds, label in items]
    return float(np.mean(right)), right


def _accuracy(model: Any, feeds: Feeds, labels: np.ndarray) -> float:
    session = _session(str(model) if isinstance(model, Path) else model)
    right = 0
    for start in range(0, len(labels), BATCH):
        part = {name: values[start : start + BATCH] for name, values in feeds.items()}
        right += int((session.run(None, part)[0].argmax(-1) == labels[start : start + BATCH]).sum())
    return right / len(labels)


def _session(model: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _reader(folder: Path) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        """One sample at a time, and from the first again when asked."""

        def __init__(self) -> None:
            self.samples = _rows(_read(folder, "calibration"))
            self.rewind()

        def get_next(self) -> Feeds | None:
            return next(self.left, None)

        def rewind(self) -> None:
            self.left: Iterator[Feeds] = iter(self.samples)

    return Reader()


def _read(folder: Path, name: str) -> Feeds:
    with np.load(folder / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def _rows(feeds: Feeds) -> list[Feeds]:
    count = len(next(iter(feeds.values())))
    return [{name: values[i : i + 1] for name, values in feeds.items()} for i in range(count)]


TOOLS: dict[str, Callable[[Path, dict[str, Any]], float]] = {
    "onnxruntime": onnxruntime_default,
    "nncf": nncf_accuracy_control,
    "neural-compressor": neural_compressor,
    "compress-step": compress_step,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
