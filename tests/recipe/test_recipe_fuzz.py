"""Whatever the text, a recipe loads or says why not: no other exception ever escapes."""

import json
import re
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compress.errors import RecipeError
from compress.recipe.load import load_recipe

LINE = re.compile(r"(x\.yaml(:\d+:\d+)?|--set .+?)(: [^:]+)?: .+[.?!]")
PIECES = ["&a ", "*a", "<<: ", "!!python/name:os ", "---\n", "\t", "'", '"', "{", "}", "[", "]", "? ", "- ", "~"]
PIECES += ["0x1f", "1e5", ": ", "#", "|\n", ">-\n", "%TAG ! x\n", "\x00", "\ud800", "\ufeff", "\u2028", ".inf"]
PIECES += ["2001-01-01", "null", "\\", "yes", "1:30", "!", "="]
SECTIONS = ["schema", "name", "seed", "model", "data", "metric", "target", "gates", "budget", "stages", "export"]
# The folder is the same for all examples of a test; each writes its file anew.
fuzz = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def problems_of(overrides: tuple[str, ...]) -> RecipeError | None:
    try:
        load_recipe(Path("x.yaml"), overrides)
    except RecipeError as error:
        return error
    return None


def load_or_explain(content: bytes, *overrides: str) -> None:
    Path("x.yaml").write_bytes(content)
    error = problems_of(overrides)
    if error:
        lines = str(error).splitlines()
        assert len(lines) == 1 + len(error.more)
        assert [line for line in lines if not LINE.fullmatch(line)] == []


@fuzz
@given(data=st.data())
def test_a_mutated_recipe_loads_or_is_explained(folder: Path, recipe_text: str, data: st.DataObject):
    text = recipe_text
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = text[:start] + data.draw(st.sampled_from(PIECES) | st.text(max_size=6)) + text[end:]
    load_or_explain(text.encode("utf-8", "surrogatepass"))


@fuzz
@given(content=st.binary(max_size=200), share=st.floats(0, 1))
def test_raw_bytes_are_explained(folder: Path, recipe_text: str, content: bytes, share: float):
    raw = recipe_text.encode()
    position = int(share * len(raw))
    load_or_explain(raw[:position] + content + raw[position:])


@fuzz
@given(section=st.sampled_from(SECTIONS), value=plain)
def test_a_section_of_any_shape_is_explained(folder: Path, recipe_text: str, section: str, value: object):
    text = yaml.safe_dump(yaml.safe_load(recipe_text) | {section: value}, allow_unicode=True)
    load_or_explain(text.encode("utf-8", "replace"))


@fuzz
@given(key=st.from_regex(r"[a-z]{1,7}(\[\d\])?(\.[a-z]{1,7}){0,2}") | st.text(max_size=9), value=st.text(max_size=9))
def test_any_override_is_explained(folder: Path, recipe_text: str, key: str, value: str):
    load_or_explain(recipe_text.encode(), f"{key}={value}")


@fuzz
@given(
    section=st.sampled_from(SECTIONS), rest=st.sampled_from(["", ".ref", "[0]", ".ptq", "[0].x", ".x.y"]), value=plain
)
def test_an_override_of_any_shape_is_explained(folder: Path, recipe_text: str, section: str, rest: str, value: object):
    load_or_explain(recipe_text.encode(), f"{section}{rest}={json.dumps(value)}")
