"""Files: whole or not at all, and every refusal of the system is one line."""

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from compress import files
from compress.errors import EXIT_ENVIRONMENT, EnvironmentProblem


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_then_full(path: Path) -> None:
    path.write_bytes(b"half")
    full()


def test_a_file_gets_its_new_content_and_nothing_else_appears(tmp_path: Path):
    files.write_json(tmp_path / "deep" / "a.json", {"ü": 1})
    files.write_json(tmp_path / "deep" / "a.json", {"ü": 2})
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == {"ü": 2}
    assert os.listdir(tmp_path / "deep") == ["a.json"]


def test_a_full_disk_keeps_the_old_file_and_leaves_no_temporary(tmp_path: Path):
    target = tmp_path / "model.onnx"
    target.write_bytes(b"old")
    with pytest.raises(EnvironmentProblem, match="no space left") as caught:
        files.write_with(target, half_then_full)
    assert caught.value.exit_code == EXIT_ENVIRONMENT
    assert str(target) in str(caught.value)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.onnx"]


def test_a_disk_that_fills_up_at_the_sync_counts_as_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match="no space left"):
        files.write_text(tmp_path / "a.txt", "new")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "error", [OSError("131072 requested and 0 written"), RuntimeError("unexpected pos 64"), ValueError("save failed")]
)
def test_a_full_disk_is_seen_behind_the_errors_of_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))

    def writer(_: Path) -> None:
        raise error

    with pytest.raises(EnvironmentProblem, match="no space left"):
        files.write_with(tmp_path / "a.npy", writer)
    assert os.listdir(tmp_path) == []


def test_an_error_of_a_writer_stays_what_it_is_while_there_is_room(tmp_path: Path):
    def writer(_: Path) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        files.write_with(tmp_path / "a.npy", writer)
    assert os.listdir(tmp_path) == []


def test_an_interrupt_leaves_no_temporary(tmp_path: Path):
    def writer(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_with(tmp_path / "a", writer)
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_should_be_is_one_line(tmp_path: Path):
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(EnvironmentProblem, match="cannot be written") as caught:
        files.write_text(tmp_path / "runs" / "a.txt", "text")
    assert caught.value.exit_code == EXIT_ENVIRONMENT
    assert "--output" in str(caught.value)


def test_a_folder_where_the_file_should_be_is_one_line(tmp_path: Path):
    (tmp_path / "report.json").mkdir()
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        files.write_text(tmp_path / "report.json", "{}")
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO])
def test_a_read_only_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    with pytest.raises(EnvironmentProblem, match=os.strerror(number)):
        files.require_writable(tmp_path, 0)


def test_too_little_space_is_told_before_any_work(tmp_path: Path):
    with pytest.raises(EnvironmentProblem, match=r"MB are free, 1000000000000 MB may be needed"):
        files.require_writable(tmp_path, 10**18)
    files.require_writable(tmp_path / "new", 0)
    assert os.listdir(tmp_path / "new") == []


def test_a_digest_sees_values_and_not_the_order_of_keys():
    assert files.digest_of({"a": 1, "b": [1, 2]}) == files.digest_of({"b": [1, 2], "a": 1})
    different = [{"a": 1}, {"a": 1.5}, {"a": "1"}, {"a": None}, {}, {"a": True}, {"a": [1]}, {"b": 1}]
    assert len({files.digest_of(value) for value in different}) == len(different)
    with pytest.raises(ValueError, match="JSON"):
        files.digest_of({"a": float("nan")})


def test_arrays_are_written_whole_through_the_same_door(tmp_path: Path):
    values = np.arange(5)
    files.write_with(tmp_path / "a.npy", lambda path: np.save(path, values, allow_pickle=False))
    assert (np.load(tmp_path / "a.npy") == values).all()
