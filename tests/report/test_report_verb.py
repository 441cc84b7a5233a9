"""`compress report RUN`."""

import json
from pathlib import Path

import pytest
import typer
from report_samples import SAMPLES
from typer.testing import CliRunner

from compress.cli.report import report
from compress.errors import InputError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(report)
    return app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/invented/2031-02-03T04-05-06")
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(SAMPLES["stopped"]()))
    return folder


def test_a_report_is_printed_and_its_page_made_anew(app: typer.Typer, folder: Path) -> None:
    done = CliRunner().invoke(app, ["invented"])
    assert done.exit_code == 0
    assert done.stdout.startswith("■ STOPPED")
    assert f"{folder}/report.html" in done.stdout
    assert (folder / "report.html").is_file()


def test_no_html_leaves_the_folder_alone(app: typer.Typer, folder: Path) -> None:
    done = CliRunner().invoke(app, [str(folder), "--no-html"])
    assert done.exit_code == 0
    assert "report.html" not in done.stdout
    assert [each.name for each in folder.iterdir()] == ["report.json"]


def test_json_prints_the_report_and_nothing_else(app: typer.Typer, folder: Path) -> None:
    done = CliRunner().invoke(app, [str(folder), "--json"])
    assert json.loads(done.stdout) == SAMPLES["stopped"]()
    assert not (folder / "report.html").exists()


def test_an_unknown_run_is_an_error_the_user_can_fix(app: typer.Typer, folder: Path) -> None:
    done = CliRunner().invoke(app, ["inventd"])
    assert isinstance(done.exception, InputError)
    assert "Did you mean 'invented'?" in str(done.exception)


def test_help_shows_examples(app: typer.Typer) -> None:
    assert "compress report int8" in CliRunner().invoke(app, ["--help"]).stdout
