"""What a right recipe becomes: typed sections, places, a digest that means the content."""

import random
from pathlib import Path

import pytest
import yaml

from compress.recipe.load import LoadedRecipe, as_document, load_recipe
from compress.recipe.spec import MODEL, PLANNED_STAGES, STAGE_FORMS, STAGE_TYPES, Ptq, Qat, Recipe


def edited(path: Path, before: str, after: str) -> Path:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return path


def test_a_right_recipe_loads_with_its_defaults(recipe_file: Path):
    loaded = load_recipe(recipe_file)
    assert loaded.recipe.name == "mine"
    assert loaded.recipe.target.threads == 2
    assert loaded.recipe.target.batch_sizes == [1]
    assert loaded.recipe.budget.minutes == 60.0
    assert loaded.recipe.metric_name == "top1"
    assert [(stage.kind, stage.label, stage.method) for stage in loaded.recipe.stages] == [("ptq", "ptq", "auto")]
    assert loaded.text == recipe_file.read_text()
    assert loaded.path == recipe_file
    assert loaded.folder == Path(".")


@pytest.mark.parametrize("written", ["ptq", "ptq:", "ptq: {}", "ptq: {name: ptq}", "ptq: {from: null, run: if_needed}"])
def test_the_ways_to_write_a_default_stage_mean_the_same(recipe_file: Path, written: str):
    plain = load_recipe(recipe_file)
    other = load_recipe(edited(recipe_file, "- ptq", f"- {written}"))
    assert isinstance(other.recipe.stages[0], Ptq)
    assert other.digest == plain.digest


def test_a_stage_may_start_from_the_model(recipe_file: Path):
    edited(recipe_file, "- ptq", f"- ptq\n  - ptq: {{name: again, from: {MODEL}, run: always}}")
    assert [(stage.label, stage.from_) for stage in load_recipe(recipe_file).recipe.stages] == [
        ("ptq", None),
        ("again", "model"),
    ]


def test_a_metric_of_the_users_own_is_gated_by_its_functions_name(recipe_file: Path):
    edited(recipe_file, "metric: top1\ntarget", "metric: {ref: 'mymodel:f1', direction: lower, chance: 1}\ntarget")
    edited(recipe_file, "{metric: top1, max_drop: 0.01}", "{metric: f1, max: 3}")
    assert load_recipe(recipe_file).recipe.metric_name == "f1"


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(recipe_file: Path):
    plain = load_recipe(recipe_file)
    recipe_file.write_bytes(b"\xef\xbb\xbf" + recipe_file.read_bytes().replace(b"\n", b"\r\n"))
    assert load_recipe(recipe_file).digest == plain.digest
    assert load_recipe(recipe_file).place("target.threads") == "x.yaml:8:3: target.threads"


def test_whole_numbers_are_fine_where_fractions_are_meant(recipe_file: Path):
    whole = load_recipe(edited(recipe_file, "min: 1.5", "min: 2")).digest
    assert load_recipe(edited(recipe_file, "min: 2", "min: 2.0")).digest == whole


def test_comments_key_order_and_spelled_out_defaults_keep_the_digest(recipe_file: Path):
    digest = load_recipe(recipe_file).digest
    data = yaml.safe_load(recipe_file.read_text())
    keys = list(data)
    random.Random(0).shuffle(keys)
    recipe_file.write_text(
        "# a comment\n" + yaml.safe_dump({key: data[key] for key in keys} | {"seed": 0}, sort_keys=False)
    )
    assert load_recipe(recipe_file).digest == digest
    assert digest.startswith("sha256:")
    assert len(digest) == len("sha256:") + 64


@pytest.mark.parametrize(
    "override", ["seed=1", "budget.minutes=61", "stages.ptq.method=u8u8-tensor", "model.kwargs.width=4"]
)
def test_another_value_is_another_digest(recipe_file: Path, override: str):
    assert load_recipe(recipe_file, [override]).digest != load_recipe(recipe_file).digest


def test_a_recipe_written_out_and_read_again_is_the_same(recipe_file: Path):
    loaded = load_recipe(recipe_file, ["stages.ptq.exclude=[a, b]", "model.kwargs={width: 4, names: [x, null, true]}"])
    Path("again.yaml").write_text(yaml.safe_dump(as_document(loaded.recipe)))
    again = load_recipe(Path("again.yaml"))
    assert again.digest == loaded.digest
    assert as_document(again.recipe) == as_document(loaded.recipe)


PLACES = {
    "target.threads": "x.yaml:8:3: target.threads",
    "model": "x.yaml:3:1: model",
    "gates[1].min": "x.yaml:11:23: gates[1].min",
    "stages[0]": "x.yaml:13:5: stages[0]",
    "stages[0].method": "x.yaml:13:11: stages[0].ptq.method",
    "stages[0].ptq.method": "x.yaml:13:11: stages[0].ptq.method",
    "stages[0].exclude": "x.yaml:13:5: stages[0].ptq.exclude",
    "target.batch_sizes": "x.yaml:7:1: target.batch_sizes",
    "budget.minutes": "x.yaml:1:1: budget.minutes",
}


@pytest.mark.parametrize(("key_path", "place"), PLACES.items())
def test_a_key_has_a_place_and_a_left_out_one_that_of_its_section(recipe_file: Path, key_path: str, place: str):
    assert load_recipe(edited(recipe_file, "- ptq", "- ptq: {method: auto}")).place(key_path) == place


def test_an_overridden_key_stands_at_its_override(recipe_file: Path):
    loaded = load_recipe(recipe_file, ["stages.ptq.method=u8u8-tensor", "target={threads: 4}"])
    assert loaded.place("stages[0].method") == "--set stages.ptq.method"
    assert loaded.place("target.threads") == "--set target: target.threads"
    assert loaded.place("name") == "x.yaml:2:1: name"


OVERRIDES = {
    "stages.ptq.method=u8u8-tensor": lambda recipe: recipe.stages[0].method == "u8u8-tensor",
    "stages[0].exclude=[a, b]": lambda recipe: recipe.stages[0].exclude == ["a", "b"],
    "stages[0].ptq.exclude=[a]": lambda recipe: recipe.stages[0].exclude == ["a"],
    "stages.ptq={method: u8s8-tensor}": lambda recipe: recipe.stages[0].method == "u8s8-tensor",
    "stages[0]=ptq": lambda recipe: recipe.stages[0].method == "auto",
    "gates[1].min=2": lambda recipe: recipe.gates[1].min == 2.0,
    "target.batch_sizes=[1,8]": lambda recipe: recipe.target.batch_sizes == [1, 8],
    "target.batch_sizes=[1, 8]": lambda recipe: recipe.target.batch_sizes == [1, 8],
    "budget.minutes=5": lambda recipe: recipe.budget.minutes == 5.0,
    "model.kwargs.width=16": lambda recipe: recipe.model.kwargs == {"width": 16},
    "model.kwargs.text=a=b": lambda recipe: recipe.model.kwargs == {"text": "a=b"},
    "export=[]": lambda recipe: recipe.export == [],
}


@pytest.mark.parametrize(("override", "holds"), OVERRIDES.items(), ids=OVERRIDES.keys())
def test_an_override_changes_the_recipe_and_never_the_file(recipe_file: Path, override: str, holds):
    before = recipe_file.read_bytes()
    loaded = load_recipe(recipe_file, [override])
    assert holds(loaded.recipe)
    assert loaded.overrides == (override,)
    assert recipe_file.read_bytes() == before


def test_the_later_override_wins(recipe_file: Path):
    assert load_recipe(recipe_file, ["target.threads=3", "target.threads=4"]).recipe.target.threads == 4


def test_an_override_mends_a_recipe(recipe_file: Path):
    edited(recipe_file, "threads: 2", "threads: 0")
    assert load_recipe(recipe_file, ["target.threads=1"]).recipe.target.threads == 1


def test_a_renamed_stage_is_overridden_by_its_name(recipe_file: Path):
    edited(recipe_file, "- ptq", "- ptq: {name: first}\n  - ptq: {name: second}")
    recipe = load_recipe(recipe_file, ["stages.second.method=u8u8-tensor"]).recipe
    assert [stage.method for stage in recipe.stages] == ["auto", "u8u8-tensor"]


def test_weights_count_from_the_recipes_folder(folder: Path, recipe_file: Path):
    (folder / "sub").mkdir()
    (folder / "sub" / "w.safetensors").write_bytes(b"")
    text = recipe_file.read_text().replace("ref: mymodel:build", "ref: mymodel:build\n  weights: w.safetensors")
    (folder / "sub" / "y.yaml").write_text(text)
    assert load_recipe(Path("sub/y.yaml")).recipe.model.weights == "w.safetensors"


def test_a_recipe_may_be_named_by_text(recipe_file: Path):
    assert isinstance(load_recipe(str(recipe_file)), LoadedRecipe)


def test_the_tables_of_stages_agree():
    assert set(STAGE_TYPES) == set(STAGE_FORMS)
    assert not set(STAGE_TYPES) & set(PLANNED_STAGES)
    assert all(kind == stage.kind for kind, stage in STAGE_TYPES.items())
    listed = Recipe.model_json_schema()["properties"]["stages"]["items"]["oneOf"]
    assert {item["$ref"].rpartition("/")[2] for item in listed} == {stage.__name__ for stage in STAGE_TYPES.values()}


def test_stages_of_several_kinds_are_read_each_by_its_own_keys(recipe_file: Path):
    edited(recipe_file, "- ptq", "- ptq: {weight_bits: 4}\n  - qat: {epochs: 2, weight_bits: 4}\n  - qat: {name: more}")
    recipe = load_recipe(recipe_file).recipe
    assert [(stage.kind, stage.label) for stage in recipe.stages] == [("ptq", "ptq"), ("qat", "qat"), ("qat", "more")]
    assert isinstance(recipe.stages[1], Qat)
    assert (recipe.stages[1].epochs, recipe.stages[2].epochs) == (2, 3)
    again = recipe_file.with_name("again.yaml")
    again.write_text(yaml.safe_dump(as_document(recipe)))
    assert load_recipe(again).digest == load_recipe(recipe_file).digest
