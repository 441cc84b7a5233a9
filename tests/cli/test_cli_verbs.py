"""The command line: exit codes, where text goes, and what each verb prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import compress
from compress.__main__ import main
from compress.cli.app import VERBS
from compress.cli.schema import SCHEMAS
from compress.errors import EnvironmentProblem
from compress.recipe.packaged import SCHEMA_COMMENT, Packaged, list_packaged
from compress.recipe.schema import recipe_schema

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "recipes").glob("*.yaml"))
PACKAGED = ", ".join(NAMES)
RECIPE = """\
schema: 1
name: mine
model: {ref: "climodel:build"}
data: {ref: "climodel:splits"}
gates:
  - {metric: top1, max_drop: 0.01}
  - {metric: speedup, min: 1.5}
stages: [ptq]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "climodel.py").write_text("def build(): ...\ndef splits(): ...\n")
    (tmp_path / "good.yaml").write_text(RECIPE)
    (tmp_path / "bad.yaml").write_text(RECIPE.replace("min: 1.5", "mn: 1.5").replace("name: mine", "name: 5"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_says_what_a_right_recipe_asks_for(capsys: pytest.CaptureFixture[str]):
    assert main(["check", "good.yaml"]) == 0
    assert capsys.readouterr() == ("good.yaml: ok: 1 stage (ptq), 2 gates, target onnxruntime cpu 1 thread\n", "")


def test_check_takes_overrides(capsys: pytest.CaptureFixture[str]):
    two = "stages=[{ptq: {name: a}}, {ptq: {name: b}}]"
    assert main(["check", "good.yaml", "--set", "target.threads=2", "--set", two]) == 0
    assert capsys.readouterr().out == "good.yaml: ok: 2 stages (a, b), 2 gates, target onnxruntime cpu 2 threads\n"


def test_check_tells_every_problem_of_every_recipe(capsys: pytest.CaptureFixture[str]):
    assert main(["check", "bad.yaml", "good.yaml", "none.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == ["good.yaml: ok: 1 stage (ptq), 2 gates, target onnxruntime cpu 1 thread"]
    assert err.splitlines() == [
        "bad.yaml:2:1: name: expected text, got 5. Put it in quotes.",
        "bad.yaml:7:23: gates[1].mn: unknown key. Did you mean 'min'?",
        f"none.yaml: no such file. Packaged recipes: {PACKAGED}. Copy one with: compress cp int8 .",
    ]


def test_check_speaks_json(capsys: pytest.CaptureFixture[str]):
    assert main(["check", "good.yaml", "bad.yaml", "--json"]) == 2
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["ok"], good["problems"], good["path"]) == (True, [], "good.yaml")
    assert good["digest"].startswith("sha256:")
    assert (bad["ok"], bad["digest"]) == (False, None)
    assert bad["problems"][1] == {
        "place": "bad.yaml:7:23: gates[1].mn",
        "fact": "unknown key",
        "remedy": "Did you mean 'min'?",
    }


def test_check_writes_nothing(folder: Path):
    before = sorted(folder.rglob("*"))
    main(["check", "good.yaml"])
    assert sorted(folder.rglob("*")) == before


def test_ls_prints_the_opening_comments(capsys: pytest.CaptureFixture[str]):
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    for recipe in list_packaged():
        assert f"{recipe.name}\n    {recipe.about[0]}\n" in text
    assert "yaml-language-server" not in text


def packaged(name: str) -> Packaged:
    return next(recipe for recipe in list_packaged() if recipe.name == name)


def test_ls_speaks_json(capsys: pytest.CaptureFixture[str]):
    assert main(["ls", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == NAMES


def test_cat_prints_the_file(capsys: pytest.CaptureFixture[str]):
    assert main(["cat", "int8"]) == 0
    assert capsys.readouterr().out == packaged("int8").path.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["cat", "cp"])
def test_a_misspelt_recipe_name_is_corrected(verb: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "int9"]) == 2
    assert capsys.readouterr().err == "int9: no packaged recipe has this name. Did you mean 'int8'?\n"


@pytest.mark.parametrize(("dest", "made"), [([], "int8.yaml"), (["."], "int8.yaml"), (["mine.yaml"], "mine.yaml")])
def test_cp_copies_the_recipe_with_a_schema_that_exists(dest: list[str], made: str, folder: Path):
    assert main(["cp", "int8", *dest]) == 0
    first, rest = (folder / made).read_text(encoding="utf-8").split("\n", 1)
    schema = Path(first.removeprefix(SCHEMA_COMMENT).removeprefix("file://"))
    assert json.loads(schema.read_text(encoding="utf-8"))["$id"] == "compress.recipe/1"
    assert rest == packaged("int8").path.read_text(encoding="utf-8").split("\n", 1)[1]
    assert yaml.safe_load(rest)["name"] == "int8"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_cp_overwrites_only_when_forced(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "int8.yaml").write_text("mine")
    assert main(["cp", "int8"]) == 2
    assert capsys.readouterr().err == "int8.yaml: the file exists. Name another, or overwrite it with --force.\n"
    assert (folder / "int8.yaml").read_text() == "mine"
    assert main(["cp", "int8", "--force"]) == 0
    assert (folder / "int8.yaml").read_text() != "mine"


def test_cp_into_a_missing_folder_is_explained(capsys: pytest.CaptureFixture[str]):
    assert main(["cp", "int8", "no/such/x.yaml"]) == 2
    assert capsys.readouterr().err == (
        "no/such/x.yaml: its folder does not exist. Make the folder first, or name another place.\n"
    )


def test_a_copied_recipe_has_the_rights_of_any_new_file(folder: Path):
    (folder / "other").write_text("")
    main(["cp", "int8"])
    assert (folder / "int8.yaml").stat().st_mode == (folder / "other").stat().st_mode


def test_schema_prints_the_schema(capsys: pytest.CaptureFixture[str]):
    assert main(["schema", "recipe"]) == 0
    assert json.loads(capsys.readouterr().out) == recipe_schema()


def test_a_misspelt_schema_is_corrected(capsys: pytest.CaptureFixture[str]):
    assert main(["schema", "recipee"]) == 2
    assert capsys.readouterr().err == "recipee: no format has this name. Did you mean 'recipe'?\n"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_can_be_built(name: str):
    assert SCHEMAS[name]()["$id"] == f"compress.{name}/1"


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"compress {compress.__version__}\n"


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_the_help_of_a_verb_starts_with_examples(verb, capsys: pytest.CaptureFixture[str]):
    assert main([verb.__name__, "--help"]) == 0
    paragraphs = capsys.readouterr().out.split("\n\n")
    assert len([line for line in paragraphs[2].splitlines() if line.startswith(f"  compress {verb.__name__}")]) >= 2


def test_the_help_lists_every_verb(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out.split("Commands:\n")[1].splitlines()
    assert [line.split()[0] for line in listed] == [verb.__name__ for verb in VERBS]


def test_a_misspelt_verb_is_corrected(capsys: pytest.CaptureFixture[str]):
    assert main(["chek", "good.yaml"]) == 2
    assert "Did you mean 'check'" in capsys.readouterr().err


def test_a_misspelt_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    assert main(["check", "good.yaml", "--sett", "a=1"]) == 2
    assert "--set" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-v", "cat", "int9"], ["cat", "int9", "--verbose"]])
def test_verbose_adds_the_traceback(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("int9: no packaged recipe has this name. Did you mean 'int8'?\n")


ESCAPES = {
    "an-error-has-its-own-code": (EnvironmentProblem("cuda", "not here", "Use cpu"), 3, "cuda: not here. Use cpu.\n"),
    "an-interrupt": (KeyboardInterrupt(), 130, ""),
    "a-closed-pipe": (BrokenPipeError(), 141, ""),
}


@pytest.mark.parametrize(("error", "code", "text"), ESCAPES.values(), ids=ESCAPES.keys())
def test_what_escapes_a_verb_becomes_an_exit_code(
    error: BaseException, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("compress.__main__._run", fail)
    monkeypatch.setattr("compress.__main__.silence_stdout", lambda: None)
    assert main([]) == code
    assert text in capsys.readouterr().err


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("compress.recipe.packaged.list_packaged", lambda: 1 / 0)
    assert main(["ls"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert "ZeroDivisionError" in err
    assert err.splitlines()[-1] == "this is a bug in compress. Please report it with the lines above."


def test_an_interrupted_verb_ends_with_130(monkeypatch: pytest.MonkeyPatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compress.recipe.packaged.list_packaged", interrupt)
    assert main(["ls"]) == 130


def start(arguments: list[str], stdout: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "compress", *arguments]
    path = {**os.environ, "PYTHONPATH": str(Path(compress.__file__).parent.parent)}
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=path)


@pytest.mark.parametrize("arguments", [["ls"], ["schema", "recipe"], ["--help"]])
def test_a_reader_that_leaves_early_is_met_with_silence(arguments: list[str]):
    reading, writing = os.pipe()
    os.close(reading)
    with start(arguments, writing) as process:
        os.close(writing)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_the_module_runs_as_a_program():
    with start(["check", "good.yaml"], subprocess.PIPE) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out.startswith("good.yaml: ok")
