"""How verbs speak: results on stdout, everything else on stderr."""

import json
import os
import sys
from typing import Any


def emit(text: str) -> None:
    """Print a result."""
    print(text, flush=True)


def emit_json(value: Any) -> None:
    """Print a result for programs: one JSON value, no NaN."""
    emit(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def complain(message: object) -> None:
    """Print to stderr, where it cannot mix with results."""
    print(message, file=sys.stderr, flush=True)


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on its own last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
