"""Whatever the text, a recipe loads or says why not: no other exception ever escapes."""

import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compress.errors import RecipeError
from compress.recipe.load import load_recipe

from conftest import RECIPE  # isort: skip

LINE = re.compile(r"(x\.yaml(:\d+:\d+)?|--set [^:]*)(: [^:]+)?: .+[.?!]")
PIECES = [
    "&a ",
    "*a",
    "<<: ",
    "!!python/name:os ",
    "---\n",
    "\t",
    "'",
    '"',
    "{",
    "}",
    "[",
    "]",
    "? ",
    "- ",
    "~",
    "0x1f",
    "1e5",
]
PIECES += [
    ": ",
    "#",
    "|\n",
    ">-\n",
    "%TAG ! x\n",
    "\x00",
    "\ud800",
    "\ufeff",
    "\u2028",
    ".inf",
    "2001-01-01",
    "null",
    "\\",
]
keep_folder = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


def load_or_explain(content: bytes, overrides: tuple[str, ...] = ()) -> None:
    Path("x.yaml").write_bytes(content)
    try:
        load_recipe(Path("x.yaml"), overrides)
    except RecipeError as error:
        lines = str(error).splitlines()
        assert len(lines) == 1 + len(error.more)
        for line in lines:
            assert LINE.fullmatch(line), line


@keep_folder
@given(data=st.data())
def test_a_mutated_recipe_loads_or_is_explained(folder: Path, data: st.DataObject):
    text = RECIPE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=6)) + text[end:]
    load_or_explain(text.encode("utf-8", "surrogatepass"))


@keep_folder
@given(content=st.binary(max_size=200), position=st.integers(0, len(RECIPE)))
def test_raw_bytes_are_explained(folder: Path, content: bytes, position: int):
    raw = RECIPE.encode()
    load_or_explain(raw[:position] + content + raw[position:])


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SECTIONS = ["schema", "name", "seed", "model", "data", "metric", "target", "gates", "budget", "stages", "export"]


@keep_folder
@given(section=st.sampled_from(SECTIONS), value=plain)
def test_a_section_of_any_shape_is_explained(folder: Path, section: str, value: object):
    import yaml

    load_or_explain(
        (yaml.safe_dump(yaml.safe_load(RECIPE) | {section: value}, allow_unicode=True)).encode("utf-8", "replace")
    )


@keep_folder
@given(
    key=st.from_regex(r"[a-z]{1,7}(\[\d\])?(\.[a-z]{1,7}){0,2}", fullmatch=True) | st.text(max_size=9),
    value=st.text(max_size=9),
)
def test_any_override_is_explained(folder: Path, key: str, value: str):
    load_or_explain(RECIPE.encode(), (f"{key}={value}",))


@keep_folder
@given(
    section=st.sampled_from(SECTIONS), rest=st.sampled_from(["", ".ref", "[0]", ".ptq", "[0].x", ".x.y"]), value=plain
)
def test_an_override_of_any_shape_is_explained(folder: Path, section: str, rest: str, value: object):
    import json

    load_or_explain(RECIPE.encode(), (f"{section}{rest}={json.dumps(value)}",))
