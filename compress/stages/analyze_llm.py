"""A decoder-only language model from its config: one decode step judged, and the view over batch and context."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from compress.analyze.llm_config import config_of, text_part
from compress.analyze.llm_table import decode_table
from compress.analyze.llm_view import BATCHES, CONTEXTS, llm_view
from compress.stages.question import Question, Say
from compress.stages.verdict import ceilings_for, judged_or_counted

# What ceilings call the types of a config; 16 bits where it names none.
TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
USUAL_CONTEXT = 2048


def analyze_llm(sizes: Mapping[str, Any], place: str, question: Question, say: Say) -> dict[str, Any]:
    """`compress.analysis/1` of one decode step, with the table over batch and context in `llm`. Nothing is timed."""
    config, ceilings = config_of(sizes, place), ceilings_for(question, say)
    part = text_part(sizes)
    dtype = str(part.get("dtype") or part.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    batch, context = question.batch or 1, question.seq or USUAL_CONTEXT
    document = judged_or_counted(
        decode_table(config, batch=batch, context=context, dtype=dtype), ceilings, question.asked(batch=batch)
    )
    view = llm_view(
        config,
        ceilings,
        batches=sorted({*BATCHES, batch}),
        contexts=sorted({*CONTEXTS, context}),
        dtype=TYPES.get(dtype),
    )
    return document | {"llm": asdict(view)}
