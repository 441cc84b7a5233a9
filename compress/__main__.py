"""The way in: runs a verb and turns what escapes from it into an exit code."""

import sys
import traceback
from collections.abc import Sequence

import typer

from compress.cli.app import app
from compress.cli.output import complain, silence_stdout
from compress.errors import EXIT_INTERRUPTED, CompressError

# EX_SOFTWARE of sysexits.h: an internal error.
EXIT_BUG = 70
# What a shell reports for a program that a closed pipe ended (`| head`): 128 + SIGPIPE.
EXIT_BROKEN_PIPE = 141
_VERBOSE = ("-v", "--verbose")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    What the user can fix is one line on stderr (a traceback with -v, anywhere on the line); anything else is our bug.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    verbose = any(argument in _VERBOSE for argument in given)
    try:
        code = _run([argument for argument in given if argument not in _VERBOSE])
        sys.stdout.flush()
        return code
    except CompressError as error:
        if verbose:
            traceback.print_exc()
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_BROKEN_PIPE
    except Exception:
        traceback.print_exc()
        complain("this is a bug in compress. Please report it with the lines above.")
        return EXIT_BUG


def _run(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="compress")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # typer would end with 1, which means a failed gate here
            raise stop.__context__ from None
        return stop.code if isinstance(stop.code, int) else 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
