"""The ceilings of this machine, kept per user: measured once, read by everything that bounds a time."""

import json
import os
from pathlib import Path
from typing import Any

from compress.device.ceilings import Ceilings
from compress.device.facts import fingerprint, versions
from compress.errors import InputError
from compress.files import write_json

CACHE_VARIABLE = "COMPRESS_CACHE"
# Raise the number when what is measured, or how, changes: older files are then ignored.
SCHEMA = "compress.ceilings/1"
# Other kernels come with another version of these.
KERNEL_PACKAGES = ("torch", "onnxruntime", "onnxruntime-gpu", "numpy")


def load_ceilings(threads: int) -> Ceilings | None:
    """What was measured here with this many threads; None when nothing was, or for another machine or other kernels."""
    try:
        found = json.loads(cache_path(threads).read_text(encoding="utf-8"))
        ceilings = Ceilings.from_dict(found["ceilings"], str(cache_path(threads)))
        fits = found["schema"] == SCHEMA and _of_this_machine(ceilings, threads)
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None
    return ceilings if fits else None


def save_ceilings(ceilings: Ceilings) -> Path | None:
    """Keep what was measured, whole or not at all. Returns the file.

    None: a figure of a busy machine would have replaced one of a quiet machine, so nothing was written.
    Raises InputError for ceilings not measured on this machine, EnvironmentProblem when the folder cannot be written.
    """
    if ceilings.threads is None or not _of_this_machine(ceilings, ceilings.threads):
        raise InputError(ceilings.name, "these ceilings are not of this machine", "Measure: compress doctor --measure")
    earlier = load_ceilings(ceilings.threads)
    if ceilings.contaminated and earlier is not None and not earlier.contaminated:
        return None
    path = cache_path(ceilings.threads)
    write_json(path, {"schema": SCHEMA, "ceilings": ceilings.as_dict()})
    return path


def cache_path(threads: int) -> Path:
    digest = fingerprint().removeprefix("sha256:")[:16]
    return cache_folder() / f"ceilings-{digest}-{threads}.json"


def cache_folder() -> Path:
    """COMPRESS_CACHE, else compress/ under XDG_CACHE_HOME, else ~/.cache/compress."""
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "compress"


def kernel_versions() -> dict[str, str]:
    """Versions whose change makes measured ceilings stale."""
    return {name: found for name, found in versions().items() if name in KERNEL_PACKAGES}


def _of_this_machine(ceilings: Ceilings, threads: int) -> bool:
    stated: tuple[Any, ...] = (ceilings.fingerprint, ceilings.versions, ceilings.threads)
    return stated == (fingerprint(), kernel_versions(), threads)
