"""How verbs speak: results on stdout, everything else on stderr."""

import json
import os
import sys
from typing import Any

import typer

# What a shell reports for a program that a closed pipe ended: 128 + SIGPIPE.
EXIT_BROKEN_PIPE = 141


def emit(text: str) -> None:
    """Print a result. A reader that has gone (`| head`) ends the program quietly."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        silence_stdout()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def emit_json(value: Any) -> None:
    """Print a result for programs: one JSON value, no NaN."""
    emit(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def complain(message: object) -> None:
    """Print to stderr, where it cannot mix with results."""
    print(message, file=sys.stderr, flush=True)


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not fail on its own last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
