"""Files are written whole or not at all: a temporary file in the same folder, fsync, rename, fsync of the folder."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compress.errors import EnvironmentProblem

TEMPORARY_PREFIX = ".writing-"
# Less than this and the disk counts as full: libraries hide the real errno behind errors of their own.
FULL_BYTES = 1_000_000


def write_with(path: Path, writer: Callable[[Path], object]) -> None:
    """Let `writer` fill a temporary file, then put it in place of `path` in one step.

    Raises EnvironmentProblem when the folder cannot be written or the disk is full; `path` keeps its old content then.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            _fill(temporary, writer)
            os.replace(temporary, path)
            _sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the system refuses inside becomes an EnvironmentProblem about `path`."""
    try:
        yield
    except OSError as error:
        raise disk_problem(path, error) from error


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
    # NumPy reports a full disk without any errno.
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or (error.errno is None and is_full(path)):
        remedy = "Free some space, or choose another disk with --output"
        return EnvironmentProblem(str(path), "no space left on the disk, nothing was changed", remedy)
    remedy = "Choose a folder you can write to with --output"
    return EnvironmentProblem(str(path), f"cannot be written ({error.strerror or error})", remedy)


def is_full(path: Path) -> bool:
    """Whether the disk that holds `path`, or would hold it, has no room left."""
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
    return folder is not None and shutil.disk_usage(folder).free < FULL_BYTES


def remove_temporaries(folder: Path) -> None:
    """Remove what writes killed halfway left under `folder`."""
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


def require_writable(folder: Path, free_bytes: int) -> None:
    """Raise EnvironmentProblem unless `folder` can be made, written to, and has `free_bytes` left on its disk."""
    probe = folder / f"{TEMPORARY_PREFIX}probe-{os.getpid()}"
    try:
        write_bytes(probe, b"")
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    free = shutil.disk_usage(folder).free
    if free < free_bytes:
        fact = f"{free / 1e6:.0f} MB are free, {free_bytes / 1e6:.0f} MB may be needed"
        raise EnvironmentProblem(str(folder), fact, "Free some space, or choose another disk with --output")


def _fill(temporary: Path, writer: Callable[[Path], object]) -> None:
    try:
        writer(temporary)
        _sync(temporary)
        temporary.chmod(0o644)
    except OSError:
        raise
    except Exception as error:
        if is_full(temporary):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
