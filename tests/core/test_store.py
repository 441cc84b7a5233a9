"""The store: made once, found whole, mended when damaged, resumed when interrupted."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import compress
from compress import files, store
from compress.errors import EnvironmentProblem
from compress.store import Entry, Store

KEY: dict[str, Any] = {"source": "sha256:1", "scheme": {"kind": "static", "bits": 7}, "seed": 0}


class Maker:
    """Writes one file, returns one fact, counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> dict[str, Any]:
        self.calls += 1
        files.write_bytes(folder / "model.onnx", b"weights" * 100)
        (folder / "sub").mkdir()
        files.write_text(folder / "sub" / "notes.txt", "notes")
        return {"speed": 2.05, "shape": (1, 2), 3: "three"}


@pytest.fixture
def here(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def damaged(here: Store) -> list[str]:
    return [name for name in os.listdir(here.root) if name.startswith("damaged-")]


def test_a_step_is_made_once_and_then_found(here: Store):
    make = Maker()
    first = here.obtain("ptq", KEY, make)
    second = here.obtain("ptq", dict(reversed(KEY.items())), make)
    assert make.calls == 1
    assert (first.cached, second.cached) == (False, True)
    assert (first.path, first.digest, first.facts) == (second.path, second.digest, second.facts)
    assert first.facts == {"speed": 2.05, "shape": [1, 2], "3": "three"}
    assert here.digest_at(first.path) == first.digest


def test_a_key_with_another_value_misses(here: Store):
    make = Maker()
    entries = [here.obtain("ptq", KEY | {"seed": seed}, make) for seed in (0, 1)]
    assert make.calls == 2
    assert entries[0].path != entries[1].path
    assert entries[0].digest == entries[1].digest  # same files, same facts
    assert here.find("qat", KEY) is None


def test_an_interrupted_step_is_no_entry_and_keeps_its_work(here: Store):
    def interrupted(folder: Path) -> dict[str, Any]:
        (folder / "work").mkdir()
        (folder / "work" / "epoch-3").write_text("progress")
        (folder / "work" / f"{files.TEMPORARY_PREFIX}half").write_text("torn")
        (folder / "model.onnx").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here.obtain("ptq", KEY, interrupted)
    assert here.find("ptq", KEY) is None
    assert here.explain_miss("ptq", KEY).reason == "interrupted before it was finished"

    def resumed(folder: Path) -> dict[str, Any]:
        assert not (folder / "model.onnx").exists()
        assert os.listdir(folder / "work") == ["epoch-3"]
        return Maker()(folder)

    entry = here.obtain("ptq", KEY, resumed)
    assert not (entry.path / "work").exists()
    assert entry.digest == Store(here.root.parent / "other").obtain("ptq", KEY, Maker()).digest


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def swap_for_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [flip, truncate, empty, Path.unlink, swap_for_folder])
@pytest.mark.parametrize("name", ["model.onnx", "sub/notes.txt", "key.json"])
def test_a_damaged_file_is_moved_aside_and_made_again(here: Store, name: str, damage):
    make = Maker()
    first = here.obtain("ptq", KEY, make)
    damage(first.path / name)
    assert here.find("ptq", KEY) is None
    assert len(damaged(here)) == 1
    assert "damaged" in here.explain_miss("ptq", KEY).reason
    again = here.obtain("ptq", KEY, make)
    assert make.calls == 2
    assert (again.digest, again.path, again.cached) == (first.digest, first.path, False)


def facts_changed(done: dict[str, Any]) -> None:
    done["facts"]["speed"] = 2.15


def file_forgotten(done: dict[str, Any]) -> None:
    del done["files"]["model.onnx"]


def digest_lost(done: dict[str, Any]) -> None:
    del done["digest"]


def seconds_odd(done: dict[str, Any]) -> None:
    done["seconds"] = "fast"


def files_odd(done: dict[str, Any]) -> None:
    done["files"] = ["model.onnx"]


@pytest.mark.parametrize("change", [facts_changed, file_forgotten, digest_lost, seconds_odd, files_odd])
def test_a_damaged_record_is_not_believed(here: Store, change):
    make = Maker()
    first = here.obtain("ptq", KEY, make)
    done = json.loads((first.path / "done.json").read_text())
    change(done)
    (first.path / "done.json").write_text(json.dumps(done))
    assert here.usual_seconds("ptq") in (None, first.seconds)
    assert here.obtain("ptq", KEY, make).digest == first.digest
    assert make.calls == 2


@pytest.mark.parametrize("damage", [truncate, empty])
def test_a_torn_record_is_made_again(here: Store, damage):
    make = Maker()
    first = here.obtain("ptq", KEY, make)
    damage(first.path / "done.json")
    (first.path / "done.json").write_bytes((first.path / "done.json").read_bytes()[:-5])
    assert here.obtain("ptq", KEY, make).digest == first.digest
    assert make.calls == 2
    assert len(damaged(here)) == 1


def test_an_entry_copied_under_another_name_is_not_believed(here: Store):
    first = here.obtain("ptq", KEY, Maker())
    other = KEY | {"seed": 1}
    shutil.copytree(first.path, here.folder("ptq", other))
    assert here.find("ptq", other) is None


def test_a_miss_names_the_keys_that_changed(here: Store):
    here.obtain("ptq", KEY, Maker())
    here.obtain("ptq", {"source": "far", "scheme": {}, "seed": 9}, Maker())
    miss = here.explain_miss("ptq", KEY | {"scheme": {"kind": "static", "bits": 8}})
    assert miss.reason == "changed: scheme.bits"
    assert miss.changed == {"scheme.bits": (7, 8)}


def test_a_miss_tells_new_and_lost_keys_and_ignores_how_lists_are_spelt(here: Store):
    here.obtain("ptq", {"shape": (1, 2), "old": None}, Maker())
    miss = here.explain_miss("ptq", {"shape": [1, 2], "new": True})
    assert miss.changed == {"old": (None, store.ABSENT), "new": (store.ABSENT, True)}


def test_a_number_and_a_truth_value_are_told_apart(here: Store):
    here.obtain("ptq", {"a": 1}, Maker())
    assert here.explain_miss("ptq", {"a": True}).changed == {"a": (1, True)}


def test_a_step_never_run_says_so(here: Store):
    assert here.explain_miss("ptq", KEY).reason == "never run here"
    assert here.usual_seconds("ptq") is None
    with pytest.raises(KeyError):
        here.digest_at(here.folder("ptq", KEY))


def test_a_full_disk_is_one_line_and_no_entry(here: Store, monkeypatch: pytest.MonkeyPatch):
    def full(_: Path, __: bytes) -> int:
        raise OSError(28, "No space left on device")

    make = Maker()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(EnvironmentProblem, match="no space left"):
            here.obtain("ptq", KEY, make)
    assert here.find("ptq", KEY) is None
    assert [path for path in here.root.rglob("*") if files.TEMPORARY_PREFIX in path.name] == []
    assert not here.obtain("ptq", KEY, make).cached


@pytest.mark.parametrize("blocked", ["store", "store/entry"])
def test_a_file_where_the_store_should_be_is_one_line(tmp_path: Path, blocked: str):
    here = Store(tmp_path / "store")
    path = here.root if blocked == "store" else here.folder("ptq", KEY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")
    with pytest.raises(EnvironmentProblem) as caught:
        here.obtain("ptq", KEY, Maker())
    assert caught.value.exit_code == 3


PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from compress import files
from compress.store import Store

root, point, log = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])

def die(here):
    if point == here:
        os.kill(os.getpid(), signal.SIGKILL)

def make(folder):
    with log.open("a") as stream:
        stream.write("made\\n")
    die("start")
    (folder / "work").mkdir(exist_ok=True)
    (folder / "work" / "state").write_text("1")
    die("work")
    def writer(path):
        path.write_bytes(b"x" * 5)
        die("mid-write")
        path.write_bytes(b"x" * 1000)
    files.write_with(folder / "a.bin", writer)
    die("between files")
    files.write_json(folder / "b.json", {"value": 1})
    time.sleep(0.2 if point == "slow" else 0)
    die("end")
    return {"value": 1}

real = os.replace
def replace(source, target):
    if Path(target).name == "done.json":
        die("before the last rename")
    real(source, target)
    if Path(target).name == "done.json":
        die("after the last rename")
os.replace = replace
print(Store(root).obtain("ptq", {"a": 1}, make).digest)
"""


def start(root: Path, point: str, log: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(Path(compress.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM, str(root), point, str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


POINTS = ["start", "work", "mid-write", "between files", "end", "before the last rename", "after the last rename"]


def test_a_step_killed_anywhere_ends_in_the_same_entry(tmp_path: Path):
    log = tmp_path / "log"
    with start(tmp_path / "whole", "none", log) as process:
        whole = process.communicate()[0]
    for point in POINTS:
        root = tmp_path / point.replace(" ", "-")
        with start(root, point, log) as process:
            process.wait()
        assert process.returncode == -signal.SIGKILL, point
        with start(root, "none", log) as process:
            assert process.communicate()[0] == whole, point
        assert [path.name for path in root.rglob(f"{files.TEMPORARY_PREFIX}*")] == [], point
        assert [name for name in os.listdir(root) if name.startswith("damaged")] == [], point


def test_two_processes_make_a_step_once(tmp_path: Path):
    log = tmp_path / "log"
    with start(tmp_path / "store", "slow", log) as one, start(tmp_path / "store", "slow", log) as two:
        answers = [one.communicate()[0], two.communicate()[0]]
    assert answers[0] == answers[1] != ""
    assert log.read_text() == "made\n"


def test_usual_seconds_are_the_median_of_finished_steps(here: Store):
    for number, seconds in enumerate((9.0, 1.0, 3.0)):
        entry: Entry = here.obtain("ptq", {"n": number}, Maker())
        done = json.loads((entry.path / "done.json").read_text()) | {"seconds": seconds}
        (entry.path / "done.json").write_text(json.dumps(done))
    assert here.usual_seconds("ptq") == 3.0
    assert here.usual_seconds("export") is None
