"""The folder of a run: runs/<name>/<time>/ with the recipe, the environment, what happened, links into the store."""

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from compress.files import disk_problem, remove_temporaries, write_json, write_text, writing

FREE_BYTES = 200_000_000


@dataclass(frozen=True)
class RunFolder:
    path: Path

    def live(self) -> FileLock:
        """A lock to hold while the run goes on, so that another run does not take it for an interrupted one."""
        return FileLock(self.path / ".live")

    def event(self, kind: str, facts: dict[str, Any]) -> None:
        """Append one line to events.jsonl. A torn last line after a crash is skipped by readers."""
        line = json.dumps(
            {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": kind} | facts, ensure_ascii=False
        )
        path = self.path / "events.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")

    def link(self, name: str, target: Path) -> str:
        """`stages/<name>` pointing into the store, replaced when it is there. Returns the path relative to the run."""
        link = self.path / "stages" / name
        temporary = link.with_name(f".{link.name}.new")
        with writing(link):
            link.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
            os.replace(temporary, link)
        return f"stages/{name}"


def open_run(root: Path, name: str, lock: dict[str, Any], text: str) -> tuple[RunFolder, bool]:
    """A folder for this run, and whether it continues an interrupted one of the very same recipe, data and model."""
    unfinished = _unfinished(root / name, lock)
    if unfinished is not None:
        with writing(unfinished):
            remove_temporaries(unfinished)
            _end_torn_line(unfinished / "events.jsonl")
        return RunFolder(unfinished), True
    folder = _new_folder(root / name)
    write_text(folder / "recipe.yaml", text)
    write_json(folder / "recipe.lock.json", lock)
    return RunFolder(folder), False


def _unfinished(parent: Path, lock: dict[str, Any]) -> Path | None:
    """The newest folder, if it has no report yet and holds the same lock."""
    newest = max((path for path in parent.glob("????-??-??T??-??-??") if path.is_dir()), default=None)
    if newest is None or (newest / "report.json").exists() or _is_live(newest):
        return None
    try:
        return newest if json.loads((newest / "recipe.lock.json").read_text()) == lock else None
    except (OSError, ValueError):
        return None


def _is_live(folder: Path) -> bool:
    """Whether a run holds the folder. The system drops the lock of a process that was killed."""
    try:
        with RunFolder(folder).live().acquire(timeout=0):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def _end_torn_line(path: Path) -> None:
    """Give a line that a crash cut off its end, so that the next event does not join it."""
    if path.exists() and path.read_bytes()[-1:] not in (b"", b"\n"):
        with path.open("ab") as stream:
            stream.write(b"\n")


def _new_folder(parent: Path) -> Path:
    """A fresh folder named by the UTC time; waits for the next second when it is taken."""
    while True:
        folder = parent / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            time.sleep(0.2)
        except OSError as error:
            raise disk_problem(folder, error) from error
