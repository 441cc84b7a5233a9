"""References: found by reading alone, imported on demand, and every way they break."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compress.errors import InputError
from compress.recipe.refs import find_ref, load_ref, search_folders


@pytest.fixture(autouse=True)
def forget_user_modules(folder: Path) -> Iterator[None]:
    """Modules of the temporary folder must not outlive it: the next test has its own of the same name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if str(folder) in file or not file:
            del sys.modules[name]


def write(name: str, text: str = "def build():\n    return 1\n") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def message(call, ref: str) -> str:
    with pytest.raises(InputError) as caught:
        call(ref, [Path.cwd()])
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "def build(): ...",
        "async def build(): ...",
        "class build: ...",
        "build = lambda: 1",
        "build: object = len",
        "(other, [build]) = len, [len]",
        "from os import getcwd as build",
        "import os as build",
        "import build.inner",
        "if True:\n    def build(): ...",
        "try:\n    from nowhere import build\nexcept ImportError:\n    build = None",
        "with open('x') as build: ...",
        "from elsewhere import *",
        "def __getattr__(name): ...",
    ],
)
def test_a_name_is_found_however_it_is_bound(source: str):
    write("some.py", source)
    assert find_ref("some:build", [Path.cwd()]) == Path.cwd() / "some.py"


@pytest.mark.parametrize(
    "source", ["def f():\n    build = 1", "class C:\n    def build(self): ...", "print(build)", ""]
)
def test_a_name_that_the_module_does_not_bind_is_missed(source: str):
    write("some.py", source)
    assert "no 'build' in some.py" in message(find_ref, "some:build")


@pytest.mark.parametrize("file", ["a.py", "a/__init__.py"])
def test_modules_and_packages_are_found(file: str):
    write(file)
    assert find_ref("a:build", [Path.cwd()]) == Path.cwd() / file


@pytest.mark.parametrize("parents", [[], ["a/__init__.py"], ["a/__init__.py", "a/b/__init__.py"]])
def test_modules_inside_packages_and_namespace_packages_are_found(parents: list[str]):
    for parent in parents:
        write(parent, "raise RuntimeError('never imported')")
    write("a/b/c.py")
    assert find_ref("a.b.c:build", [Path.cwd()]) == Path.cwd() / "a/b/c.py"
    assert "a" not in sys.modules


def test_finding_runs_nothing_of_the_users():
    write("loud.py", "raise SystemExit('ran')\ndef build(): ...")
    assert find_ref("loud:build", [Path.cwd()]) == Path.cwd() / "loud.py"
    assert "loud" not in sys.modules


@pytest.mark.parametrize("ref", ["math:sqrt", "sys:exit", "_struct:Struct"])
def test_built_in_and_compiled_modules_are_accepted_unread(ref: str):
    assert find_ref(ref, []) is None


def test_our_own_package_is_found_where_it_is_installed():
    write("compress/recipe/load.py", "")
    found = find_ref("compress.recipe.load:load_recipe", [Path.cwd()])
    assert found is not None
    assert not found.is_relative_to(Path.cwd())


def test_an_installed_module_is_found():
    assert find_ref("pytest:fixture", []) is not None


def test_the_first_folder_wins_and_the_current_folder_comes_first(folder: Path):
    write("one/some.py")
    write("two/some.py")
    assert find_ref("some:build", [Path("two"), Path("one")]) == Path("two/some.py").absolute()
    assert search_folders(Path("one/x.yaml")) == (folder, folder / "one")


REFS = {
    "build": "build: 'build' is not package.module:function. Write it like mymodel:build.",
    "a.build": "a.build: 'a.build' is not package.module:function. Did you mean 'a:build'?",
    ":build": ":build: ':build' is not package.module:function. Write it like mymodel:build.",
    "a:": "a:: 'a:' is not package.module:function. Write it like mymodel:build.",
    "a:b.c": "a:b.c: 'a:b.c' is not package.module:function. Write it like mymodel:build.",
    "a:b:c": "a:b:c: 'a:b:c' is not package.module:function. Write it like mymodel:build.",
    "..a:b": "..a:b: '..a:b' is not package.module:function. Write it like mymodel:build.",
    "a b:c": "a b:c: 'a b:c' is not package.module:function. Write it like mymodel:build.",
    "class:c": "class:c: 'class:c' is not package.module:function. Write it like mymodel:build.",
    "./src/a.py:b": "./src/a.py:b: './src/a.py' is a file, and a reference names a module. Write 'src.a:b'.",
    "__main__:b": "__main__:b: another process cannot find __main__ again. Put the function in a .py file.",
    "ns:b": "ns:b: 'ns' is a folder without __init__.py, so it holds no 'b'. Name the module inside it.",
    "mymodel.x:b": "mymodel.x:b: no module named 'mymodel.x' on the path "
    "(looked in: current folder, the recipe's folder, installed packages). Check the spelling.",
    "mymodel:zzz": "mymodel:zzz: no 'zzz' in mymodel.py. "
    "It has: CONSTANT, Net, build, f1, splits, torch_is_never_imported_by_check.",
}


@pytest.mark.parametrize(("ref", "text"), REFS.items())
def test_a_reference_that_leads_nowhere_is_explained(ref: str, text: str):
    write("ns/other.py")
    assert message(find_ref, ref) == text
    assert message(load_ref, ref) == text


def test_a_module_that_is_not_text_is_explained():
    Path("raw.py").write_bytes(b"def build(): ...\n\xff\xfe\n")
    assert "raw.py" in message(find_ref, "raw:build")


def test_a_loaded_reference_is_the_callable_and_the_path_is_put_back():
    write("some.py", "import helper\n\ndef build():\n    return helper.build()\n")
    write("helper.py")
    before = sys.path[:]
    assert load_ref("some:build", [Path.cwd()])() == 1
    assert sys.path == before


BROKEN = {
    "raises": (
        "\n\nx = 1 / 0\ndef build(): ...",
        "some.py:3: ZeroDivisionError: division by zero. Importing 'some' must work.",
    ),
    "in-a-library": (
        "import json\njson.loads('{')\ndef build(): ...",
        "some.py:2: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1). "
        "Importing 'some' must work.",
    ),
    "misses-a-module": (
        "import no_such_module\ndef build(): ...",
        "some.py:1: ModuleNotFoundError: No module named 'no_such_module'. Importing 'some' must work.",
    ),
    "exits": (
        "def build(): ...\nraise SystemExit(3)",
        "some.py:2: calls exit(3) on import. Put that under `if __name__`.",
    ),
    "not-callable": ("build = 3", "some:build: 'build' is of type int, not a function. Name a function or a class."),
    "deletes-it": ("build = 3\nother = 4\ndel build", "some:build: no 'build' in module 'some'. It has: other."),
    "multi-line": (
        "def build(): ...\nraise ValueError('one\\n  two')",
        "some.py:2: ValueError: one two. Importing 'some' must work.",
    ),
}


@pytest.mark.parametrize(("source", "text"), BROKEN.values(), ids=BROKEN.keys())
def test_a_module_that_breaks_on_import_is_told_in_one_line(source: str, text: str):
    write("some.py", source)
    assert message(load_ref, "some:build") == text


def test_an_interrupt_during_import_stays_an_interrupt():
    write("some.py", "def build(): ...\nraise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_ref("some:build", [Path.cwd()])


def test_another_module_of_the_same_name_is_not_used_in_silence():
    write("one/some.py")
    write("two/some.py")
    load_ref("some:build", [Path("one").absolute()])
    with pytest.raises(InputError, match=r"another 'some' is already imported, from one/some.py"):
        load_ref("some:build", [Path("two").absolute()])
