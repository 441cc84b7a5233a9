"""Where each key of a recipe was written, and how problems become one error with a line each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compress.errors import RecipeError
from compress.recipe.words import KeyPath, show_path

# Line and column, both from 1.
Mark = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One fault of a recipe.

    mark: set where the position is not the path's own (syntax, the second of two equal keys).
    override: the key of the `--set` that is to blame, where that is known already.
    whole: the fault lies in a section as a whole, so any `--set` inside it is to blame.
    """

    path: KeyPath
    fact: str
    remedy: str = ""
    mark: Mark | None = None
    override: str | None = None
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Places:
    """file: as the user named it; marks: by key path; overrides: key path to the `--set` key that wrote it."""

    file: str
    marks: Mapping[KeyPath, Mark]
    overrides: Mapping[KeyPath, str]

    def of(self, path: KeyPath) -> str:
        """`file:line:column: key.path`, or `--set key`; a key that was left out stands where its section does."""
        return self._render(Problem(path=path, fact=""))[1]

    def error(self, problems: Iterable[Problem]) -> RecipeError:
        """All problems as one error: those of the file first, from top to bottom, each told once."""
        placed = sorted((self._render(problem), problem.fact, problem.remedy) for problem in problems)
        lines = dict.fromkeys((place, fact, remedy) for (_, place), fact, remedy in placed)
        first, *rest = (RecipeError(*line) for line in lines)
        return RecipeError(first.place, first.fact, first.remedy, more=rest)

    def _render(self, problem: Problem) -> tuple[tuple[int, int, int], str]:
        override = problem.override or self._blamed_override(problem)
        if override:
            own = override == problem.override or self.overrides.get(problem.path) == override
            return (1, 0, 0), f"--set {override}" + ("" if own else f": {show_path(problem.path)}")
        line, column = problem.mark or self._nearest_mark(problem.path)
        key = show_path(problem.path)
        return (0, line, column), f"{self.file}:{line}:{column}" + (f": {key}" if key else "")

    def _blamed_override(self, problem: Problem) -> str | None:
        if problem.mark:
            return None
        path = problem.path
        for length in range(len(path), 0, -1):
            if path[:length] in self.overrides:
                return self.overrides[path[:length]]
        below = [key for written, key in self.overrides.items() if written[: len(path)] == path]
        made_by_override = path not in self.marks and path != ()
        return below[-1] if below and (problem.whole or made_by_override) else None

    def _nearest_mark(self, path: KeyPath) -> Mark:
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return 1, 1
