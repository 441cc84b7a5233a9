"""kill -9 at any moment, Ctrl-C at any moment: the same command continues and ends with the same files, bit for bit."""

import signal
import time
from pathlib import Path

import pytest
from running import Run, newest_report, start, write_recipe


def hashes(run: Run) -> dict[str, str]:
    return {candidate.name: candidate.sha256 for candidate in run.report.candidates if candidate.form == "int8"}


def wait_for(process, store: Path, pattern: str, count: int) -> None:
    """Until so many entries match, or the run has ended."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(store.glob(pattern))) >= count:
            return
        time.sleep(0.01)


# A glob in the store whose n-th match is the moment to strike: in the middle of a step (its folder is there, done.json
# is not) and right after one.
MOMENTS = [
    ("export-*/key.json", 1),
    ("export-*/done.json", 1),
    ("scores-*/key.json", 1),
    ("timing-*/done.json", 1),
    ("ptq-*/key.json", 1),
    ("ptq-*/done.json", 1),
    ("audit-*/key.json", 2),
    ("scores-*/done.json", 3),
    ("timing-*/key.json", 6),
    ("ptq-*/key.json", 4),
    ("timing-*/done.json", 12),
]


@pytest.mark.slow
def test_a_run_killed_at_every_turn_ends_with_the_same_files(finished, tmp_path):
    recipe, store = write_recipe(tmp_path), tmp_path / ".compress/store"
    killed = 0
    for pattern, count in MOMENTS:
        process = start([str(recipe)], tmp_path)
        wait_for(process, store, pattern, count)
        if process.poll() is None:
            process.kill()
            killed += 1
        process.communicate(timeout=60)
    assert killed >= 8
    assert not list((tmp_path / "runs/digits").glob("*/report.json"))
    process = start([str(recipe)], tmp_path)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "continuing the interrupted run" in errors
    assert hashes(newest_report(tmp_path)) == hashes(finished)
    assert len(list((tmp_path / "runs/digits").iterdir())) == 1
    leftovers = [path for path in tmp_path.rglob(".writing-*") if (path.parent / "done.json").exists()]
    assert leftovers == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_reports_what_it_has_and_continues(finished, tmp_path, sent):
    recipe, store = write_recipe(tmp_path), tmp_path / ".compress/store"
    process = start([str(recipe)], tmp_path)
    wait_for(process, store, "ptq-*/done.json", 2)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    report = newest_report(tmp_path).report
    assert (report.outcome, report.exit_code) == ("stopped", 130)
    assert "run the same command again" in report.reason
    assert report.next[0].startswith("compress run ")
    assert (newest_report(tmp_path).folder / "best/model.onnx").exists()
    again = start([str(recipe)], tmp_path)
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert hashes(newest_report(tmp_path)) == hashes(finished)
