"""Ranges that training has settled, put in place of the calibrated ones."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import TensorsData


def with_ranges(calibrated: "TensorsData", learned: Mapping[str, tuple[float, float]]) -> "TensorsData":
    """The calibrated ranges, but (low, high) of `learned` where a tensor has them; tensors not calibrated are added."""
    from onnxruntime.quantization.calibrate import TensorData, TensorsData

    known = {name: calibrated[name] for name in calibrated.keys()}  # noqa: SIM118  TensorsData is not a mapping
    own = {
        name: TensorData(lowest=np.array(low, dtype=np.float32), highest=np.array(high, dtype=np.float32))
        for name, (low, high) in learned.items()
    }
    return TensorsData(calibrated.calibration_method, known | own)
