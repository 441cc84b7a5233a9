"""JSON Schema of `compress.analysis/1`. Keys are only ever added. Pure Python."""

from typing import Any

from compress.analyze.classes import CLASSES
from compress.analyze.table import KINDS, LEVELS, ROLES, TAGS

ANALYSIS = "compress.analysis/1"
CONFIDENCES = ("measured on this machine", "datasheet, not measured", "ceilings contaminated", "counted only")

_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "number", "minimum": 0}
_SHARE: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
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
        "device": _or_null(_device()),
        "classes": {"type": "object", "additionalProperties": _class()},
        "verdict": _or_null(_verdict()),
        "stages": {"type": "array", "items": _stage()},
    }
    document = _object(properties)
    # Written since the verdict is: documents from before it have none.
    document["properties"]["op_classes"] = {"type": "array", "items": _op_class()}
    # Of `compress analyze` alone: where the question was asked and has an answer.
    document["properties"] |= {
        "llm": _llm(),
        "symbolic": _or_null(_symbolic()),
        "probes": {"type": "array", "items": _probe()},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": ANALYSIS, "title": ANALYSIS, **document}


def _device() -> dict[str, Any]:
    maybe_text = {"type": ["string", "null"]}
    rates = {"type": "object", "additionalProperties": _MAYBE_NUMBER}
    return _object(
        {
            "name": _TEXT,
            "source": _TEXT,
            "confidence": _TEXT,
            "threads": {"type": ["integer", "null"]},
            "flop_per_s": rates,
            "bandwidth_byte_per_s": rates,
            "ridge_flop_per_byte": rates,
            "dispatch_ns": rates,
            "node_ns": _MAYBE_NUMBER,
            "contaminated": {"type": "boolean"},
            "wall_over_cpu": _MAYBE_NUMBER,
            "date": maybe_text,
            "note": _TEXT,
        }
    )


def _class() -> dict[str, Any]:
    return _object({"share": _SHARE, "time_ms": _NUMBER, "ops": _COUNT})


def _verdict() -> dict[str, Any]:
    advice = _object({"remedy": _TEXT, "sentence": _TEXT})
    times = ("compute_ms", "memory_c_ms", "memory_g_ms", "memory_u_ms", "floor_ms", "hard_ms")
    return _object(
        {
            "class": {"enum": list(CLASSES)},
            "share": _SHARE,
            "runner_up": {"enum": [*CLASSES, None]},
            "mixed": {"type": "boolean"},
            "confidence": {"enum": list(CONFIDENCES)},
            "sentence": _TEXT,
            "evidence": {"type": "array", "items": _TEXT},
            "errors": {"type": "array", "items": _TEXT},
            "runtime": _TEXT,
            "bound": _object({**dict.fromkeys(times, _NUMBER), "limit": _TEXT}),
            "measured_ms": _or_null(_span()),
            "advice": {"type": "array", "items": advice},
        }
    )


def _llm() -> dict[str, Any]:
    """Decoding over batch and context: `llm_view.LlmView`."""
    names = (
        "flops", "bytes", "intensity_flop_per_byte", "kv_share", "time_ms", "int8_weights_speedup",
        "int4_weights_speedup", "kv_int8_speedup",
    )  # fmt: skip
    row = {"batch": _COUNT, "context": _COUNT, **dict.fromkeys(names, _NUMBER)}
    row |= {"memory_bound": {"type": "boolean"}, "fits": {"type": ["boolean", "null"]}}
    return _object(
        {
            "dtype": _TEXT,
            "ridge_flop_per_byte": _NUMBER,
            "rows": {"type": "array", "items": _object(row), "minItems": 1},
            "decode": _TEXT,
            "prefill": _TEXT,
        }
    )


def _symbolic() -> dict[str, Any]:
    """Expressions in b and s as text, and their values over batches: `symbolic.ClosedForm`."""
    sums = ("macs", "unfused_bytes", "compulsory_bytes")
    row = _object({"b": _COUNT, "s": {"type": ["integer", "null"]}, **dict.fromkeys(sums, _COUNT)})
    symbols = {"type": "array", "items": {"enum": ["b", "s"]}}
    return _object({**dict.fromkeys(sums, _TEXT), "symbols": symbols, "sweep": {"type": "array", "items": row}})


def _probe() -> dict[str, Any]:
    """What was timed for one row of `stages`: `probe.ProbeResult`."""
    texts = dict.fromkeys(("prediction", "method", "note"), _TEXT)
    return _object({**texts, "speedup": _or_null(_span()), "covered_share": _SHARE, "seconds": _NUMBER})


def _stage() -> dict[str, Any]:
    row = _object(
        {
            "name": _TEXT,
            "hard_speedup": _MAYBE_NUMBER,
            "expected_speedup": _NUMBER,
            "probe_speedup": _or_null(_span()),
            "helps": {"enum": ["go", "warn", "stop"]},
            "why": _TEXT,
        }
    )
    # Of the time now, what the probe speaks for.
    row["properties"]["probe_covered_share"] = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
    return row


def _op_class() -> dict[str, Any]:
    times = dict.fromkeys(("time_ms", "bound_low_ms", "bound_high_ms"), _NUMBER)
    return _object({"id": _COUNT, "class": {"enum": list(CLASSES)}, "measured": {"type": "boolean"}, **times})


def _span() -> dict[str, Any]:
    return _object({"value": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n": _COUNT})


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


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
