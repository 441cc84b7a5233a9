"""The folder of a run: continued when it was cut off, new otherwise."""

import json
import os
from pathlib import Path

import pytest

from compress import runs
from compress.errors import EnvironmentProblem
from compress.files import TEMPORARY_PREFIX
from compress.runs import RunFolder, open_run

LOCK = {"recipe": {"name": "my-int8"}, "data": {"select": "1"}}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.time, "sleep", lambda _: None)


def test_a_run_cut_off_is_continued_with_the_same_lock_only(tmp_path: Path):
    first, continued = open_run(tmp_path, "my-int8", LOCK, "name: my-int8")
    assert not continued
    assert (first.path / "recipe.yaml").read_text() == "name: my-int8"
    again, continued = open_run(tmp_path, "my-int8", LOCK, "name: my-int8")
    assert (again, continued) == (first, True)
    other, continued = open_run(tmp_path, "my-int8", LOCK | {"data": {"select": "2"}}, "name: my-int8")
    assert other != first
    assert not continued


def test_a_finished_run_is_never_continued(tmp_path: Path):
    first, _ = open_run(tmp_path, "my-int8", LOCK, "")
    (first.path / "report.json").write_text("{}")
    second, continued = open_run(tmp_path, "my-int8", LOCK, "")
    assert not continued
    assert second.path > first.path


@pytest.mark.parametrize("lock", [None, "", "{", "[]"])
def test_a_run_cut_off_before_its_lock_was_whole_is_not_continued(tmp_path: Path, lock: str | None):
    folder = tmp_path / "my-int8" / "2020-01-01T00-00-00"
    folder.mkdir(parents=True)
    if lock is not None:
        (folder / "recipe.lock.json").write_text(lock)
    assert open_run(tmp_path, "my-int8", LOCK, "")[1] is False


def test_a_folder_of_the_users_own_does_not_hide_an_interrupted_run(tmp_path: Path):
    first, _ = open_run(tmp_path, "my-int8", LOCK, "")
    (first.path.parent / "zz-notes").mkdir()
    assert open_run(tmp_path, "my-int8", LOCK, "") == (first, True)


def test_leftovers_of_a_crash_are_mended(tmp_path: Path):
    first, _ = open_run(tmp_path, "my-int8", LOCK, "")
    first.event("start", {"a": 1})
    with (first.path / "events.jsonl").open("a") as stream:
        stream.write('{"time": "20')
    (first.path / f"{TEMPORARY_PREFIX}x.json").write_text("half")
    again, _ = open_run(tmp_path, "my-int8", LOCK, "")
    again.event("end", {"b": "ü"})
    lines = (first.path / "events.jsonl").read_text().splitlines()
    assert [json.loads(lines[0])["event"], json.loads(lines[2])["event"]] == ["start", "end"]
    assert len(lines) == 3
    assert list(first.path.glob(f"{TEMPORARY_PREFIX}*")) == []


def test_a_link_points_into_the_store_and_can_be_replaced(tmp_path: Path):
    folder = RunFolder(tmp_path / "runs" / "a")
    for name in ("one", "two"):
        (tmp_path / "store" / name).mkdir(parents=True)
        assert folder.link("01-export", tmp_path / "store" / name) == "stages/01-export"
    link = folder.path / "stages" / "01-export"
    assert link.resolve() == (tmp_path / "store" / "two").resolve()
    assert not os.path.isabs(os.readlink(link))
    assert os.listdir(link.parent) == ["01-export"]


def test_what_the_disk_refuses_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentProblem):
        open_run(tmp_path / "file", "my-int8", LOCK, "")
    with pytest.raises(EnvironmentProblem):
        RunFolder(tmp_path / "file").event("start", {})
    with pytest.raises(EnvironmentProblem):
        RunFolder(tmp_path / "file").link("a", tmp_path)


def test_a_run_that_is_still_going_on_is_not_taken_for_an_interrupted_one(tmp_path):
    first, _ = open_run(tmp_path, "x", {"a": 1}, "text")
    with first.live():
        second, continued = open_run(tmp_path, "x", {"a": 1}, "text")
    assert second.path != first.path
    assert not continued
