"""Errors a user can fix. Anything else that escapes is a bug of ours and keeps its traceback.

Every message reads `place: fact. remedy.`: where to look, what was found (with the value), what to do about it.
"""

from collections.abc import Sequence

EXIT_PASS = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_VERDICT = 4
EXIT_INTERRUPTED = 130


class CompressError(Exception):
    """A problem the user can fix: one line, no traceback.

    place: `file:line:column: key.path`, a file or a reference; fact: what was found; remedy: what to do.
    """

    exit_code = EXIT_USAGE

    def __init__(self, place: str, fact: str, remedy: str = "") -> None:
        super().__init__(place, fact, remedy)
        self.place, self.fact, self.remedy = place, fact, remedy

    def __str__(self) -> str:
        sentences = [_sentence(part) for part in (self.fact, self.remedy) if part]
        return f"{self.place}: {' '.join(sentences)}"


class RecipeError(CompressError):
    """The recipe is wrong: unreadable, unknown key, wrong type, impossible stage order.

    more: the other problems of the same recipe, in file order; each prints on a line of its own.
    """

    def __init__(self, place: str, fact: str, remedy: str = "", *, more: Sequence[CompressError] = ()) -> None:
        super().__init__(place, fact, remedy)
        self.more = tuple(more)

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *map(str, self.more)])


class InputError(CompressError):
    """The user's model, weights, data or metric cannot be used as they are."""


class GateError(CompressError):
    """The gates cannot be judged at all, e.g. a baseline at or below chance."""

    exit_code = EXIT_GATE


class EnvironmentProblem(CompressError):  # noqa: N818
    """The machine cannot do what was asked: missing provider, read-only folder, no space left."""

    exit_code = EXIT_ENVIRONMENT


class VerdictStop(CompressError):  # noqa: N818
    """The target lies beyond what arithmetic allows; nothing was started."""

    exit_code = EXIT_VERDICT


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "?", "!")) else text + "."
