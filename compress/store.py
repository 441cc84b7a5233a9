"""The store: one folder per finished step, named by the digest of everything the step depends on.

A folder is complete when `done.json` exists; it is written last, by rename, and lists the sha256 of every file. A
folder without it is an interrupted step: its `work/` is kept for the step to resume from, the rest is made again.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from compress.files import digest_of, remove_temporaries, sha256_of, write_json, writing

Key = dict[str, Any]
ABSENT = "(absent)"


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
        if not (folder / "done.json").exists():
            return None
        done = _read_json(folder / "done.json")
        if done is None or not _is_sound(done, folder, key):
            self._quarantine(folder)
            return None
        return Entry(path=folder, digest=done["digest"], facts=done["facts"], seconds=done["seconds"], cached=True)

    def obtain(self, stage: str, key: Key, make: Callable[[Path], dict[str, Any]]) -> Entry:
        """The entry for `key`, made by `make(folder)` unless it is there already.

        `make` writes its files into the folder (`folder / "work"` survives an interruption) and returns plain facts.
        """
        folder = self.folder(stage, key)
        with self._locked(folder):
            found = self.find(stage, key)
            if found is not None:
                return found
            with writing(folder):
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
        if any(self.root.glob(f"damaged-{self.folder(stage, key).name}-*")):
            return Miss(reason="its files were damaged and moved aside", changed={})
        differences = [_difference(_read_json(path.parent / "key.json") or {}, key) for path in self._finished(stage)]
        if not differences:
            return Miss(reason="never run here", changed={})
        nearest = min(differences, key=len)
        return Miss(reason="changed: " + ", ".join(sorted(nearest)), changed=nearest)

    def usual_seconds(self, stage: str) -> float | None:
        """Median of what finished entries of this stage took, or None."""
        found = [(_read_json(path) or {}).get("seconds") for path in self._finished(stage)]
        seconds = sorted(value for value in found if isinstance(value, int | float))
        return seconds[len(seconds) // 2] if seconds else None

    def _finished(self, stage: str) -> Iterator[Path]:
        return self.root.glob(f"{stage}-{'[0-9a-f]' * 16}/done.json")

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        lock = FileLock(self.root / f".{folder.name}.lock")
        with writing(folder):
            self.root.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _quarantine(self, folder: Path) -> None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        with writing(folder), suppress(FileNotFoundError):  # another process may have moved it already
            folder.rename(self.root / f"damaged-{folder.name}-{stamp}")


def _finish(folder: Path, key: Key, facts: dict[str, Any], seconds: float) -> Entry:
    shutil.rmtree(folder / "work", ignore_errors=True)
    remove_temporaries(folder)
    facts = json.loads(json.dumps(facts))  # as a later process will read them: tuples are lists, keys are strings
    files = {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    digest = _content_digest(files, facts)
    done = {"key": digest_of(key), "digest": digest, "files": files, "facts": facts, "seconds": seconds}
    write_json(folder / "done.json", done)
    return Entry(path=folder, digest=digest, facts=facts, seconds=seconds, cached=False)


def _clear_(folder: Path) -> None:
    """Remove what an interrupted attempt left, but its `work/`."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.name != "work":
            shutil.rmtree(path)
    remove_temporaries(folder)


def _content_digest(files: dict[str, str], facts: dict[str, Any]) -> str:
    """What a step made, wherever and whenever: its files but the key, and its facts."""
    return digest_of({"files": {name: sha for name, sha in files.items() if name != "key.json"}, "facts": facts})


def _is_sound(done: dict[str, Any], folder: Path, key: Key) -> bool:
    """Whether the record itself and every file it lists are as they were written."""
    files, facts = done.get("files"), done.get("facts")
    if not isinstance(files, dict) or not isinstance(facts, dict) or not isinstance(done.get("seconds"), int | float):
        return False
    if done.get("key") != digest_of(key) or done.get("digest") != _content_digest(files, facts):
        return False
    return "key.json" in files and all(_is_intact(folder / name, sha) for name, sha in files.items())


def _is_intact(path: Path, sha: str) -> bool:
    try:
        return path.is_file() and sha256_of(path) == sha
    except OSError:  # a disk that cannot give the bytes back
        return False


def _difference(old: Any, new: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        merged: dict[str, tuple[Any, Any]] = {}
        for name in sorted(old.keys() | new.keys()):
            merged |= _difference(old.get(name, ABSENT), new.get(name, ABSENT), f"{path}.{name}".lstrip("."))
        return merged
    return {} if digest_of(old) == digest_of(new) else {path: (old, new)}


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
