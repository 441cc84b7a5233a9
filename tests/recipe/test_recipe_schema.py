"""The JSON Schema accepts what the loader accepts, and editors see the same keys."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from compress.errors import RecipeError
from compress.recipe.load import load_recipe
from compress.recipe.packaged import SCHEMA_COMMENT, SCHEMA_FILE, find_recipe, list_packaged, packaged_folder
from compress.recipe.schema import recipe_schema

VALIDATOR = jsonschema.Draft202012Validator(recipe_schema())


def accepts(data: object) -> bool:
    return VALIDATOR.is_valid(data)


def test_the_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(recipe_schema())


def test_the_schema_file_beside_the_recipes_is_up_to_date():
    written = json.loads((packaged_folder() / SCHEMA_FILE).read_text(encoding="utf-8"))
    assert written == recipe_schema(), "run: compress schema recipe > recipes/recipe.schema.json"


@pytest.mark.parametrize("recipe", list_packaged(), ids=lambda recipe: recipe.name)
def test_a_packaged_recipe_fits_the_schema_and_introduces_itself(recipe):
    text = recipe.path.read_text(encoding="utf-8")
    VALIDATOR.validate(yaml.safe_load(text))
    assert text.startswith(f"{SCHEMA_COMMENT}{SCHEMA_FILE}\n")
    assert [line.partition(":")[0] for line in recipe.about][:2] == ["Aim", "Cost"]
    assert yaml.safe_load(text)["name"] == recipe.name


@pytest.mark.parametrize("recipe", list_packaged(), ids=lambda recipe: recipe.name)
def test_a_packaged_recipe_loads_with_references_of_the_users(recipe, folder: Path):
    refs = ["model.ref=mymodel:build", "data.ref=mymodel:splits"]
    assert load_recipe(recipe.path, refs).recipe.name == recipe.name


CHANGES = [
    {},
    {"stages": ["ptq"]},
    {"stages": [{"ptq": None}]},
    {"stages": [{"ptq": {"method": "x", "name": "a"}}]},
    {"stages": [{"ptq": {"metod": "x"}}]},
    {"stages": ["qat"]},
    {"stages": [{"ptq": {}, "name": "a"}]},
    {"stages": []},
    {"stages": "ptq"},
    {"gates": [{"metric": "speedup", "min": 1}]},
    {"gates": [{"metric": "speedup", "min": 1, "max": None}]},
    {"gates": [{"metric": "speedup", "min": 1, "max": 2}]},
    {"gates": [{"metric": "speedup"}]},
    {"metric": {"ref": "mymodel:speed", "direction": "higher"}},
    {"metric": {"ref": "mymodel:speed"}},
    {"target": {"threads": 0}},
    {"target": {"thread": 1}},
    {"schema": 2},
    {"name": "A B"},
    {"extra": 1},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_schema_and_the_loader_agree_on_shapes(folder: Path, recipe_text: str, change: dict):
    Path("mymodel.py").write_text("build = splits = speed = len\n")
    data = yaml.safe_load(recipe_text) | {"gates": [{"metric": "speedup", "min": 1.5}]} | change
    Path("x.yaml").write_text(yaml.safe_dump(data))
    try:
        load_recipe(Path("x.yaml"))
        loads = True
    except RecipeError:
        loads = False
    assert accepts(data) == loads


def test_a_name_stands_for_a_packaged_recipe_unless_a_file_has_it(folder: Path):
    assert find_recipe("int8") == packaged_folder() / "int8.yaml"
    assert find_recipe("nope") == Path("nope")
    Path("int8").write_text("")
    assert find_recipe("int8") == Path("int8")
