"""Files are written whole or not at all: a temporary file in the same folder, fsync, rename, fsync of the folder."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compress.errors import EnvironmentProblem

TEMPORARY_PREFIX = ".writing-"


def write_with(path: Path, writer: Callable[[Path], object]) -> None:
    """Let `writer` fill a temporary file, then put it in place of `path` in one step.

    Raises EnvironmentProblem when the folder cannot be written or the disk is full; `path` keeps its old content then.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        writer(temporary)
        _sync(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        raise disk_problem(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    write_with(path, lambda temporary: temporary.write_bytes(data))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Digest of plain data by its canonical JSON: key order does not matter, values do."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def disk_problem(path: Path, error: OSError) -> EnvironmentProblem:
    """Turn an OSError of a write into the line a user can act on."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space, or choose another disk with --output"
        return EnvironmentProblem(str(path), "no space left on the disk, nothing was changed", remedy)
    remedy = "Choose a folder you can write to with --output"
    return EnvironmentProblem(str(path), f"cannot be written ({error.strerror or error})", remedy)


def require_writable(folder: Path, free_bytes: int) -> None:
    """Raise EnvironmentProblem unless `folder` can be made, written to, and has `free_bytes` left on its disk."""
    write_bytes(folder / f"{TEMPORARY_PREFIX}probe", b"")
    (folder / f"{TEMPORARY_PREFIX}probe").unlink()
    free = shutil.disk_usage(folder).free
    if free < free_bytes:
        fact = f"{free / 1e6:.0f} MB are free, {free_bytes / 1e6:.0f} MB may be needed"
        raise EnvironmentProblem(str(folder), fact, "Free some space, or choose another disk with --output")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
