"""A worker that never answers is one line, not a traceback."""

from pathlib import Path

import pytest

from compress.errors import InputError
from compress.measure import isolated


def test_a_worker_that_gives_no_answer_in_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(isolated, "TIMEOUT_SECONDS", 0.01)
    with pytest.raises(InputError, match=r"model\.onnx: the process that ran it gave no answer within 0\.01 s"):
        isolated.peak_memory(tmp_path / "model.onnx", {}, isolated.Bench(provider="cpu", threads=1))
