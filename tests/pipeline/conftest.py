"""One finished run of a small real net, made once; tests that need a head start copy its store."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Run, newest_report, start, write_recipe


@pytest.fixture(scope="session", autouse=True)
def _ceilings_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """This machine's ceilings are measured once for all tests, in a folder of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMPRESS_CACHE", str(tmp_path_factory.mktemp("ceilings")))
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    output = tmp_path_factory.mktemp("finished")
    process = start([str(write_recipe(output))], output)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return newest_report(output)


@pytest.fixture
def head_start(finished: Run, tmp_path: Path) -> Path:
    """A fresh output folder whose store already holds what the finished run made."""
    shutil.copytree(finished.output / ".compress", tmp_path / ".compress")
    return tmp_path
