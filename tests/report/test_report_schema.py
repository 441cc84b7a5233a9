"""The report's format: what goes in comes out, and what is no report is refused with the place and the cure."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_samples import SAMPLES, passing, sample

from compress.errors import InputError
from compress.report.read import read_report, resolve_run
from compress.report.schema import Report, report_schema, to_json
from compress.report.strict import unknown_keys


def written(folder: Path, record: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(record if isinstance(record, str) else json.dumps(record), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_survives_writing_and_reading(name: str, tmp_path: Path) -> None:
    report = sample(name)
    assert read_report(written(tmp_path, to_json(report))) == report


@pytest.mark.parametrize("name", SAMPLES)
def test_a_written_report_meets_the_published_schema(name: str) -> None:
    jsonschema.Draft202012Validator(report_schema()).validate(json.loads(to_json(sample(name))))


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(report_schema())


def test_the_published_schema_refuses_an_unknown_outcome() -> None:
    with pytest.raises(jsonschema.ValidationError, match="maybe"):
        jsonschema.validate({**passing(), "outcome": "maybe"}, report_schema())


def test_every_key_and_number_is_kept_as_it_was() -> None:
    record = passing()
    kept = json.loads(to_json(Report.model_validate(record)))
    assert _missing(record, kept) == []


def test_keys_of_a_later_version_are_read_and_listed() -> None:
    record = passing()
    record["carbon"] = 3
    record["candidates"][0]["audit"]["tensor_cores"] = True
    record["baselines"][0]["metrics"]["top1"]["level"] = 0.95
    report = Report.model_validate(record)
    assert unknown_keys(report) == ["carbon", "baselines.0.metrics.top1.level", "candidates.0.audit.tensor_cores"]
    assert json.loads(to_json(report))["carbon"] == 3


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_use_no_key_outside_the_format(name: str) -> None:
    assert unknown_keys(sample(name)) == []


@pytest.mark.parametrize("version", ["compress.report/2", "compress.analysis/1", None, 1])
def test_another_version_is_refused(version: object, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"report\.json: schema: found .*, this version reads 'compress\.report/1'\. \w"
    ):
        read_report(written(tmp_path, {**passing(), "schema": version}))


def test_a_wrong_value_is_named_by_its_key(tmp_path: Path) -> None:
    record = passing()
    record["candidates"][1]["outcome"] = "splendid"
    with pytest.raises(InputError, match=r"report\.json: candidates\.1\.outcome: Input should be 'pass', 'fail'"):
        read_report(written(tmp_path, record))


def test_a_winner_that_is_no_candidate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the winner 'ghost' is not among the candidates"):
        read_report(written(tmp_path, {**passing(), "winner": "ghost"}))


@pytest.mark.parametrize("text", ["NaN", "Infinity"])
def test_a_number_that_is_not_finite_is_refused(text: str, tmp_path: Path) -> None:
    broken = json.dumps({**passing(), "seconds": 12345}).replace('"seconds": 12345', f'"seconds": {text}')
    with pytest.raises(InputError, match=r"report\.json: seconds: Input should be a finite number\. "):
        read_report(written(tmp_path, broken))


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", r"report\.json:1:2: not JSON"), ("[]", "holds a list, not a report"), ("\ufffd", "not JSON")],
)
def test_a_broken_file_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_report(written(tmp_path, text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_report(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_report(tmp_path / "report.json")


def test_a_run_is_found_by_folder_by_file_and_by_name(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    written(runs / "tiny" / "2031-01-01T00-00-00", passing())
    newest = written(runs / "tiny" / "2031-01-02T00-00-00", passing())
    (runs / "tiny" / "2031-01-03T00-00-00").mkdir()  # still running
    for given in (str(newest), str(newest / "report.json"), "tiny", str(runs / "tiny")):
        assert resolve_run(given, runs) == newest


def test_a_mistyped_recipe_name_brings_the_close_one(tmp_path: Path) -> None:
    written(tmp_path / "mobilenet" / "2031-01-01T00-00-00", passing())
    with pytest.raises(InputError, match="Did you mean 'mobilenet'"):
        resolve_run("mobilnet", tmp_path)


def test_a_recipe_without_a_finished_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "tiny" / "2031-01-01T00-00-00").mkdir(parents=True)
    with pytest.raises(InputError, match=r"holds no run with a report\.json"):
        resolve_run("tiny", tmp_path)


def test_a_file_that_is_no_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("hello")
    with pytest.raises(InputError, match="this file is not a report"):
        resolve_run(str(tmp_path / "other.txt"), tmp_path)


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys, compress.report.read, compress.report.terminal, compress.report.html, compress.report.progress, "
        "compress.cli.report; print(*{'torch', 'scipy', 'numpy', 'matplotlib', 'onnx', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def _missing(before: Any, after: Any, place: str = "") -> list[str]:
    """Places where a value of `before` is not the same, type included, in `after`."""
    if isinstance(before, dict):
        return [at for key in before for at in _missing(before[key], after.get(key, "gone"), f"{place}.{key}")]
    if isinstance(before, list):
        pairs = zip(before, after, strict=True)
        return [at for number, (one, other) in enumerate(pairs) for at in _missing(one, other, f"{place}.{number}")]
    return [] if before == after and type(before) is type(after) else [place]
