"""The store: one folder per finished step, named by the digest of everything the step depends on.

A folder is complete when `done.json` exists; it is written last, by rename, and lists the sha256 of every file. A
folder without it is an interrupted step: its `work/` is kept for the step to resume from, the rest is made again.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from compress.files import TEMPORARY_PREFIX, digest_of, sha256_of, write_json

Key = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A finished step. `cached`: it was found, not made; `seconds`: what making it took."""

    path: Path
    digest: str
    facts: dict[str, Any]
    seconds: float
    cached: bool


@dataclass(frozen=True, kw_only=True)
class Miss:
    """Why a step is not in the store. `changed`: the parts of the key that differ from the nearest finished entry."""

    reason: str
    changed: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Store:
    root: Path

    def folder(self, stage: str, key: Key) -> Path:
        return self.root / f"{stage}-{digest_of(key).removeprefix('sha256:')[:16]}"

    def find(self, stage: str, key: Key) -> Entry | None:
        """The finished entry, checked file by file; a damaged one is moved to quarantine and counts as missing."""
        folder = self.folder(stage, key)
        done = _read_json(folder / "done.json")
        if done is None:
            return None
        if done.get("key") != digest_of(key) or not _intact(folder, done.get("files", {})):
            self._quarantine(folder)
            return None
        return Entry(path=folder, digest=done["digest"], facts=done["facts"], seconds=done["seconds"], cached=True)

    def obtain(self, stage: str, key: Key, make: Callable[[Path], dict[str, Any]]) -> Entry:
        """The entry for `key`, made by `make(folder)` unless it is there already.

        `make` writes its files into the folder (`folder / "work"` survives an interruption) and returns plain facts.
        """
        folder = self.folder(stage, key)
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / f".{folder.name}.lock"):
            found = self.find(stage, key)
            if found is not None:
                return found
            _clear_(folder)
            write_json(folder / "key.json", key)
            started = time.monotonic()
            facts = make(folder)
            seconds = round(time.monotonic() - started, 3)
            return _finish(folder, key, facts, seconds)

    def digest_at(self, folder: Path) -> str:
        """Digest of the finished entry in `folder`. Raises KeyError when there is none."""
        return str((_read_json(folder / "done.json") or {})["digest"])

    def explain_miss(self, stage: str, key: Key) -> Miss:
        """Say why `find` gave nothing, against the finished entry whose key differs in the fewest places."""
        if (self.folder(stage, key) / "key.json").exists():
            return Miss(reason="interrupted before it was finished", changed={})
        differences = [_difference(_read_json(path.parent / "key.json") or {}, key) for path in self._finished(stage)]
        if not differences:
            return Miss(reason="never run here", changed={})
        nearest = min(differences, key=len)
        return Miss(reason="changed: " + ", ".join(sorted(nearest)), changed=nearest)

    def usual_seconds(self, stage: str) -> float | None:
        """Median of what finished entries of this stage took, or None."""
        seconds = sorted((_read_json(path) or {}).get("seconds", 0.0) for path in self._finished(stage))
        return seconds[len(seconds) // 2] if seconds else None

    def _finished(self, stage: str) -> Iterator[Path]:
        return self.root.glob(f"{stage}-{'[0-9a-f]' * 16}/done.json")

    def _quarantine(self, folder: Path) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        folder.rename(self.root / f"damaged-{folder.name}-{stamp}")


def _finish(folder: Path, key: Key, facts: dict[str, Any], seconds: float) -> Entry:
    shutil.rmtree(folder / "work", ignore_errors=True)
    files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    digest = digest_of(
        {"files": {name: digest for name, digest in files.items() if name != "key.json"}, "facts": facts}
    )
    done = {"key": digest_of(key), "digest": digest, "files": files, "facts": facts, "seconds": seconds}
    write_json(folder / "done.json", done)
    return Entry(path=folder, digest=digest, facts=facts, seconds=seconds, cached=False)


def _clear_(folder: Path) -> None:
    """Remove what an interrupted attempt left, but its `work/`."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir() and path.name != "work":
            shutil.rmtree(path)
        elif path.is_file() or path.is_symlink():
            path.unlink()
    for path in (folder / "work").glob(f"**/{TEMPORARY_PREFIX}*"):
        path.unlink()


def _intact(folder: Path, files: dict[str, str]) -> bool:
    return bool(files) and all(
        (folder / name).is_file() and sha256_of(folder / name) == sha for name, sha in files.items()
    )


def _difference(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        merged: dict[str, tuple[Any, Any]] = {}
        for name in sorted(old.keys() | new.keys()):
            merged |= _difference(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
        return merged
    return {} if old == new else {path: (old, new)}


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
