"""What this machine is: CPU flags and what they mean for int8, versions, limits, and how busy it is."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from compress.files import digest_of

PACKAGES = (
    "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "torch-pruning", "nvidia-modelopt",
    "accelerate", "datasets", "numpy", "scipy", "safetensors", "pydantic",
)  # fmt: skip
INT8_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "avx512_bf16", "asimddp", "i8mm")
VNNI_FLAGS = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
# ORT's U8S8 kernels on these add pairs of products in 16 bits, which overflows; see docs/design/ptq.md.
SATURATING = ("avx2", "avx512f")


def versions() -> dict[str, str]:
    """Version of Python, of this package and of each package whose version can change a result."""
    found = {"python": platform.python_version()}
    for name in ("compress-ladder", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu_facts() -> dict[str, Any]:
    """Name, usable cores, the flags that matter for int8, and a sentence on what they mean."""
    name, flags = _cpuinfo()
    kept = [flag for flag in INT8_FLAGS if flag in flags]
    return {"name": name, "cores": usable_cores(), "flags": kept, "int8": int8_sentence(kept)}


def saturates(flags: list[str]) -> bool:
    """Whether 8-bit x 8-bit sums can overflow 16 bits in the integer kernels of this CPU."""
    return any(flag in flags for flag in SATURATING) and not any(flag in flags for flag in VNNI_FLAGS)


def overflows_here() -> bool:
    """`saturates` of the CPU that this runs on."""
    return saturates(cpu_facts()["flags"])


def int8_sentence(flags: list[str]) -> str:
    if any(flag in flags for flag in VNNI_FLAGS):
        return "has 8-bit dot products: int8 is at full speed and cannot saturate"
    if saturates(flags):
        return "AVX2/AVX-512 without VNNI: u8s8 sums can saturate at 16 bits, so 7-bit weights are tried first"
    return "no 8-bit instructions known to this tool: int8 may not be faster"


def usable_cores() -> int:
    """Cores this process may use: affinity and the cgroup quota, not the host's count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, int(float(quota[0]) / float(quota[1]))))
    return cores


def pressure() -> dict[str, float]:
    """Share of the last 10 s in which some task waited (percent, Linux PSI) and the one-minute load."""
    found: dict[str, float] = {}
    for kind in ("cpu", "memory", "io"):
        line = _first_line(f"/proc/pressure/{kind}")
        if line.startswith("some avg10="):
            found[f"{kind}_some_avg10"] = float(line.split()[1].removeprefix("avg10="))
    return found | ({"load1": round(os.getloadavg()[0], 2)} if hasattr(os, "getloadavg") else {})


def memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)


def fingerprint() -> str:
    """Digest of what makes a timing comparable: CPU, cores, system. Not how busy it was."""
    cpu = cpu_facts()
    return digest_of(
        {
            "cpu": cpu["name"],
            "flags": cpu["flags"],
            "cores": cpu["cores"],
            "system": platform.system(),
            "machine": platform.machine(),
        }
    )


def _cpuinfo() -> tuple[str, list[str]]:
    """Model name and flags. /proc first: the portable library starts processes and takes a second."""
    lines = _text("/proc/cpuinfo").splitlines()
    pairs = [line.split(":", 1) for line in lines if ":" in line]
    found = {key.strip(): value.strip() for key, value in pairs}
    if "flags" in found or "Features" in found:
        return found.get("model name", platform.machine()), (found.get("flags") or found["Features"]).split()
    from cpuinfo import get_cpu_info

    info = get_cpu_info()
    return info.get("brand_raw", platform.machine()), list(info.get("flags", []))


def _first_line(path: str) -> str:
    return (_text(path).splitlines() or [""])[0]


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
