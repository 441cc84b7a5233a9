"""Analyze a model without running a recipe: whatever a reference can name."""

from typing import Any

from compress.device.devices import device_named
from compress.stages.analyze_file import analyze_onnx
from compress.stages.analyze_llm import analyze_llm
from compress.stages.question import Question, Say
from compress.stages.subjects import ConfigSubject, FileSubject, subject_of


def analyze_ref(ref: str, question: Question, say: Say) -> dict[str, Any]:
    """`compress.analysis/1` of a reference: see `subjects`. say: told what takes time.

    Raises InputError or EnvironmentProblem when there is nothing to analyze; a model that misbehaves gives a partial
    document.
    """
    if question.device is not None:
        device_named(question.device)  # a name that is wrong is said before anything is built
    document = _analyzed(ref, question, say)
    if question.probe and not document.get("probes"):
        return document | {"notes": [*document["notes"], "nothing probed: only a file that can be timed here can be"]}
    return document


def _analyzed(ref: str, question: Question, say: Say) -> dict[str, Any]:
    subject = subject_of(ref)
    if isinstance(subject, ConfigSubject):
        return analyze_llm(subject.sizes, subject.place, question, say)
    if isinstance(subject, FileSubject):
        return analyze_onnx(subject.path, question, say)
    from compress.stages.analyze_module import analyze_torch

    return analyze_torch(subject, question, say)
