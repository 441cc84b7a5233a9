"""NVIDIA GPUs as the driver names them, and the CUDA that torch was built for, without starting either."""

import re
from importlib.util import find_spec
from pathlib import Path


def gpus() -> list[str]:
    """Names of the GPUs the driver offers; empty without a driver or without a GPU."""
    return _ask_driver()[0]


def gpu_problem() -> str:
    """Why `gpus` is empty, in the driver's words."""
    return _ask_driver()[1]


def cuda_of_torch() -> str | None:
    """The CUDA version in torch's own version file; None for a CPU build or without torch. Nothing is imported."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def _ask_driver() -> tuple[list[str], str]:
    try:
        import pynvml
    except ImportError:
        return [], "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [], f"{error}"
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles], "the driver offers no GPU"
    except pynvml.NVMLError as error:
        return [], f"{error}"
    finally:
        pynvml.nvmlShutdown()


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
