"""ONNX Runtime sessions as this tool opens them: threads pinned, provider checked, nothing spinning."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import EnvironmentProblem, InputError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

PROVIDERS = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}


def open_session(
    path: Path,
    *,
    provider: str = "cpu",
    threads: int = 1,
    optimise: bool = True,
    optimised_path: Path | None = None,
    profile_prefix: Path | None = None,
) -> "InferenceSession":
    """Open `path`. Raises InputError when the runtime refuses it, EnvironmentProblem when the provider is another.

    optimise=False runs the graph as written (Q/DQ in float); optimised_path receives the graph that really runs.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle pools that spin steal the other model's core while two sessions are compared.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    if optimised_path is not None:
        options.optimized_model_filepath = str(optimised_path)
    if profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile_prefix)
    wanted = PROVIDERS[provider]
    if wanted[0] not in onnxruntime.get_available_providers():
        raise _no_provider(provider, "is not part of the installed ONNX Runtime")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=wanted)
    except Exception as error:  # the binding raises a dozen unrelated classes for one thing: it does not want the file
        raise InputError(
            str(path), f"ONNX Runtime refuses the file ({_first_line(error)})", "Export it again"
        ) from error
    if session.get_providers()[0] != wanted[0]:
        raise _no_provider(provider, f"was asked for, but the session runs on {session.get_providers()[0]}")
    return session


def run_session(session: "InferenceSession", feeds: dict[str, Any], place: str) -> dict[str, Any]:
    """Outputs by name for one batch of feeds. Raises InputError, naming shapes, when the graph refuses the batch."""
    try:
        found = session.run(None, feeds)
    except Exception as error:  # see open_session
        shapes = ", ".join(f"{name} {values.dtype}{list(values.shape)}" for name, values in feeds.items())
        fact = f"ONNX Runtime cannot run it on {shapes} ({_first_line(error)})"
        raise InputError(place, fact, "Look for sizes that were baked into the graph") from error
    return dict(zip([item.name for item in session.get_outputs()], found, strict=True))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def save_simplified(source: Path, target: Path) -> None:
    """Write `source` to `target` with constants evaluated and BatchNormalization folded: portable rewrites only."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(str(source), options, providers=PROVIDERS["cpu"])


def _no_provider(provider: str, fact: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"target.provider {provider}",
        f"{PROVIDERS[provider][0]} {fact}",
        "Use provider: cpu, or run on a machine that has it",
    )
