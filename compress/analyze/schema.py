"""JSON Schema of `compress.analysis/1`. Keys are only ever added. Pure Python."""

from typing import Any

from compress.analyze.table import KINDS, LEVELS, ROLES, TAGS

ANALYSIS = "compress.analysis/1"

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_TEXT: dict[str, Any] = {"type": "string"}
_MAYBE_NUMBER: dict[str, Any] = {"type": ["number", "null"], "minimum": 0}


def analysis_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of what `summary.analysis_dict` returns, with the parts later steps fill in."""
    properties = {
        "schema": {"const": ANALYSIS},
        "source": _TEXT,
        "model": _model(),
        "ops": {"type": "array", "items": _op()},
        "levels": _levels(),
        "kinds": {"type": "object", "additionalProperties": _numbers("calls", "macs", "g_bytes")},
        "top": _object({"macs": {"type": "array", "items": _COUNT}, "bytes": {"type": "array", "items": _COUNT}}),
        "unknown_ops": {"type": "array", "items": _object({"op": _TEXT, "calls": _COUNT})},
        "coverage": {"type": "number", "minimum": 0, "maximum": 1},
        "notes": {"type": "array", "items": _TEXT},
        "error": {"type": ["string", "null"]},
        "unattributed_ms": _MAYBE_NUMBER,
        "device": {"type": ["object", "null"]},
        "classes": {"type": "object"},
        "verdict": {"type": ["object", "null"]},
        "stages": {"type": "array", "items": {"type": "object"}},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ANALYSIS, "title": ANALYSIS, **_object(properties)}


def _model() -> dict[str, Any]:
    counts = ("params", "bytes", "macs", "flops", "elementwise_flops", "causal_flops")
    tensors = {"type": "array", "items": _tensor()}
    return _object({**dict.fromkeys(counts, _COUNT), "inputs": tensors, "outputs": tensors})


def _op() -> dict[str, Any]:
    tensors = {"type": "array", "items": _tensor()}
    return _object(
        {
            "id": _COUNT,
            "op": _TEXT,
            "module": _TEXT,
            "kind": {"enum": list(KINDS)},
            "causal": {"type": "boolean"},
            "inputs": tensors,
            "outputs": tensors,
            "macs": _COUNT,
            "flops": _COUNT,
            "elementwise_flops": _COUNT,
            "levels": _levels(),
            "intensity_flop_per_byte": _MAYBE_NUMBER,
            "time_ms": _MAYBE_NUMBER,
        }
    )


def _tensor() -> dict[str, Any]:
    shape = {"type": "array", "items": _COUNT}
    return _object({"name": _TEXT, "shape": shape, "dtype": _TEXT, "role": {"enum": list(ROLES)}, "bytes": _COUNT})


def _levels() -> dict[str, Any]:
    return _object({level: _numbers(*(f"{tag}_bytes" for tag in TAGS), "total_bytes") for level in LEVELS})


def _numbers(*names: str) -> dict[str, Any]:
    return _object(dict.fromkeys(names, _COUNT))


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
