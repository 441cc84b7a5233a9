"""Findings about this installation and machine, each with a mark, a fact and a remedy. Quick: no torch is imported."""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from compress.device import cached, facts
from compress.device.gpu import cuda_of_torch, gpu_problem, gpus
from compress.errors import CompressError
from compress.files import require_writable

Mark = Literal["ok", "warn", "fail"]
NEEDED = ("torch", "onnx")
RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
MODELOPT_NEEDS = ("requests", "huggingface_hub")
# Above these, timings on this machine are not to be trusted: percent of time some task waited, load per usable core.
BUSY_PERCENT, BUSY_LOAD = 10.0, 1.5
OLD_DAYS = 30


@dataclass(frozen=True, kw_only=True)
class Finding:
    """what: the subject in one or two words; remedy: what to do, empty where nothing is to be done."""

    mark: Mark
    what: str
    fact: str
    remedy: str = ""


def checkup(output: Path, free_bytes: int, threads: int) -> list[Finding]:
    """Everything looked at, in reading order. output: where runs would be written, and what they need there."""
    looks: list[Callable[[], Finding]] = [
        packages, torch_build, runtimes, providers, session, cpu, cores, pressure, modelopt, program,
        lambda: folder(output, free_bytes), lambda: ceilings(threads),
    ]  # fmt: skip
    return [look() for look in looks]


def packages() -> Finding:
    found = facts.versions()
    fact = ", ".join(f"{name} {version}" for name, version in found.items())
    missing = [name for name in NEEDED if name not in found]
    if missing:
        return Finding(mark="fail", what="packages", fact=f"missing: {', '.join(missing)}", remedy=_pip(*missing))
    return Finding(mark="ok", what="packages", fact=fact)


def torch_build() -> Finding:
    """Whether torch can use the GPU that is there, from the build's own notes."""
    cuda, names = cuda_of_torch(), gpus()
    build = f"built for CUDA {cuda}" if cuda else "built for CPU only"
    if names and not cuda:
        remedy = "Install a CUDA build: https://pytorch.org/get-started/locally"
        return Finding(mark="warn", what="torch", fact=f"{build}, but there is {names[0]}", remedy=remedy)
    return Finding(
        mark="ok", what="torch", fact=build + (f", GPUs: {', '.join(names)}" if names else ", no NVIDIA GPU")
    )


def runtimes() -> Finding:
    """The two distributions of ONNX Runtime write into one folder: the last one installed wins, silently."""
    found = [name for name in RUNTIMES if name in facts.versions()]
    if len(found) > 1:
        remedy = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install the one you want"
        return Finding(mark="fail", what="onnxruntime", fact="both packages share one import folder", remedy=remedy)
    if not found:
        return Finding(mark="fail", what="onnxruntime", fact="not installed", remedy=_pip("onnxruntime"))
    return Finding(mark="ok", what="onnxruntime", fact=f"{found[0]} {facts.versions()[found[0]]}, and no other")


def providers() -> Finding:
    """ONNX Runtime lists what it was built with, not what works here; asked for CUDA without a GPU it falls back."""
    listed = _listed_providers()
    names = ", ".join(name.removesuffix("ExecutionProvider") for name in listed) or "none"
    if "CUDAExecutionProvider" not in listed or gpus():
        return Finding(mark="ok", what="providers", fact=f"{names} are listed")
    fact = f"{names} are listed, but no GPU can be used ({gpu_problem()})"
    sign = bool(shutil.which("nvidia-smi")) or Path("/proc/driver/nvidia").exists()
    if sign:
        return Finding(
            mark="warn", what="providers", fact=fact, remedy="Repair the driver, or keep target.provider: cpu"
        )
    return Finding(mark="ok", what="providers", fact=f"{fact}: recipes run with target.provider: cpu")


def session() -> Finding:
    """A file of one node is opened and run."""
    try:
        with tempfile.TemporaryDirectory(prefix="compress-") as scratch:
            _open_tiny(Path(scratch) / "tiny.onnx")
    except Exception as error:  # whatever a broken installation raises is what the user has to know
        remedy = "Install ONNX Runtime again: pip install --force-reinstall onnxruntime"
        return Finding(mark="fail", what="session", fact=f"ONNX Runtime opens nothing ({error})", remedy=remedy)
    return Finding(mark="ok", what="session", fact="ONNX Runtime opens a file and runs it on the CPU")


def cpu() -> Finding:
    found = facts.cpu_facts()
    flags = ", ".join(found["flags"]) or "no flags known"
    return Finding(mark="ok", what="cpu", fact=f"{found['name']} ({flags}): {found['int8']}")


def cores() -> Finding:
    """Pools sized by the host's count would fight over the cores this process may use."""
    usable, there = facts.usable_cores(), os.cpu_count() or 1
    if usable < there:
        remedy = f"Set target.threads to at most {usable}"
        return Finding(mark="warn", what="cores", fact=f"{usable} usable of {there}", remedy=remedy)
    return Finding(mark="ok", what="cores", fact=f"{usable} usable of {there}")


def pressure() -> Finding:
    found = facts.pressure()
    busy = found.get("cpu_some_avg10", 0.0) > BUSY_PERCENT or found.get("load1", 0.0) > BUSY_LOAD * facts.usable_cores()
    fact = ", ".join(f"{name} {value:g}" for name, value in found.items()) or "the system does not tell"
    if busy:
        remedy = "Timings will be noisy: stop other programs, or expect inconclusive gates"
        return Finding(mark="warn", what="pressure", fact=f"busy: {fact}", remedy=remedy)
    return Finding(mark="ok", what="pressure", fact=fact)


def modelopt() -> Finding:
    """nvidia-modelopt imports packages that it does not declare."""
    if "nvidia-modelopt" not in facts.versions():
        return Finding(mark="warn", what="modelopt", fact="not installed", remedy=_pip("nvidia-modelopt"))
    missing = [name for name in MODELOPT_NEEDS if find_spec(name) is None]
    if missing:
        fact = f"needs {', '.join(missing)}, which it does not declare"
        return Finding(mark="fail", what="modelopt", fact=fact, remedy=_pip(*missing))
    return Finding(mark="ok", what="modelopt", fact="what it imports is there")


def program() -> Finding:
    """Debian's ncompress owns a program of our name."""
    ours = Path(sysconfig.get_path("scripts")) / "compress"
    first = shutil.which("compress")
    if first is not None and ours.exists() and Path(first).samefile(ours):
        return Finding(mark="ok", what="program", fact=f"`compress` is {first}")
    found = f"`compress` is {first}, another program" if first else "no `compress` is on PATH"
    remedy = f"Put {ours.parent} first on PATH" if ours.exists() else "Type: python -m compress"
    return Finding(mark="warn", what="program", fact=f"{found} (Python is {sys.executable})", remedy=remedy)


def folder(output: Path, free_bytes: int) -> Finding:
    """Whether runs can be written to `output`, or to the folder in which it would be made."""
    existing = next(path for path in (output.resolve(), *output.resolve().parents) if path.exists())
    try:
        require_writable(existing, free_bytes)
    except CompressError as error:
        return Finding(mark="fail", what="folder", fact=f"{error.place}: {error.fact}", remedy=error.remedy)
    free = shutil.disk_usage(existing).free
    return Finding(mark="ok", what="folder", fact=f"{existing} is writable, {free / 1e9:.1f} GB are free")


def ceilings(threads: int) -> Finding:
    """Whether bounds on this machine come from measurement."""
    found = cached.load_ceilings(threads)
    label = f"{threads} thread{'' if threads == 1 else 's'}"
    remedy = f"compress doctor --measure --threads {threads}"
    if found is None or found.date is None:
        fact = f"not measured with {label} for this machine and these versions"
        return Finding(mark="warn", what="ceilings", fact=fact, remedy=remedy)
    days = (datetime.now(UTC) - datetime.fromisoformat(found.date)).days
    fact = f"measured with {label} {f'{days} days ago' if days else 'today'}" + (
        " on a busy machine" if found.contaminated else ""
    )
    stale = found.contaminated or days > OLD_DAYS
    return Finding(mark="warn" if stale else "ok", what="ceilings", fact=fact, remedy=remedy if stale else "")


def _listed_providers() -> list[str]:
    try:
        import onnxruntime

        return list(onnxruntime.get_available_providers())
    except (ImportError, AttributeError):  # what an uninstalled twin leaves behind; `session` says so
        return []


def _open_tiny(path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    from compress.device.runtime import open_session

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    answer = open_session(path).run(None, {"x": np.full(1, -1.0, np.float32)})
    if np.asarray(answer[0]) != 0:
        raise ValueError(f"relu(-1) is {answer[0]}")


def _pip(*names: str) -> str:
    return f"pip install {' '.join(re.sub('_', '-', name) for name in names)}"
