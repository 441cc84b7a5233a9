"""The JSON Schema of the recipe as users write it, for editors and for `compress schema recipe`."""

from typing import Any

from compress.recipe.spec import STAGE_TYPES, Recipe

_ID = "compress.recipe/1"
_LIMITS = ("max_drop", "max_relative_drop", "min", "max")


def recipe_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12. A stage is a bare name or one name with its mapping."""
    schema = Recipe.model_json_schema(by_alias=True)
    schema["properties"]["stages"]["items"] = {"anyOf": [_bare_stage(), *map(_stage_with_body, STAGE_TYPES)]}
    # Exactly one limit; a limit of null counts as left out.
    given = [{"required": [name], "properties": {name: {"type": "number"}}} for name in _LIMITS]
    schema["$defs"]["Gate"]["oneOf"] = given
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": _ID, **schema}


def _bare_stage() -> dict[str, Any]:
    return {"enum": sorted(STAGE_TYPES)}


def _stage_with_body(kind: str) -> dict[str, Any]:
    body = {"anyOf": [{"$ref": f"#/$defs/{STAGE_TYPES[kind].__name__}"}, {"type": "null"}]}
    return {"type": "object", "properties": {kind: body}, "required": [kind], "additionalProperties": False}
