"""What is wrong with YAML text before its values matter: broken syntax, and what a recipe does without."""

import contextlib
import re
from collections.abc import Iterator

import yaml

from compress.recipe.places import Mark, Problem
from compress.recipe.words import shorten

_DEEPEST = 32
# The parser's wording, where the fault is seen, what to say, what to do. "context" is where the broken construct opens.
_WORDING = (
    (r"found character '\\t'", "problem", "a tab where YAML wants spaces", "Indent with spaces"),
    (r"quoted scalar .*(of stream|separator)", "context", "the quote opened here is never closed", "Close it"),
    (r"flow (sequence|mapping) ", "context", "the bracket opened here is not closed", "Close it or add a comma"),
    (r"mapping values are not", "problem", "a ': ' that does not belong here", "Indent it like its neighbours"),
    (r"could not find expected ':'", "context", "neither `key: value` nor a list item", "Add the ':' after the key"),
    (r"block (mapping|collection) ", "problem", "the indentation does not fit the lines above", "Align it with them"),
    (r"unknown escape", "problem", "an unknown escape in double quotes", "Use single quotes, or two backslashes"),
    (r"found character '[@`%]'", "problem", "text cannot start with this character", "Put it in quotes"),
    (r"expected '<document start>'", "problem", "text after the end of the recipe", "Align it with the first key"),
)


def find_syntax_problems(text: str) -> tuple[Problem, ...]:
    """Faults in the order of the text. Once the syntax breaks, nothing after it is looked at."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        return (_forbidden_character(text, error),)
    found: list[Problem] = []
    try:
        for problem in _refused_parts(loader):
            found.append(problem)
    except yaml.MarkedYAMLError as error:
        found.append(_runaway_quote(text, error) or _broken_syntax(error))
    except (ValueError, OverflowError):  # an escape such as "\\U00110000" names no character
        found.append(_at("an escape that names no character", "Write the character itself", mark_of(loader.get_mark())))
    return tuple(found)


def mark_of(mark: yaml.Mark) -> Mark:
    """Line and column from 1, as editors count."""
    return mark.line + 1, mark.column + 1


def _refused_parts(loader: yaml.SafeLoader) -> Iterator[Problem]:
    documents = depth = 0
    while loader.check_event():
        event = loader.get_event()
        mark = mark_of(event.start_mark)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            yield _at("a second document starts here", "Keep one recipe per file", mark)
            return
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:  # what follows walks the tree by recursion
            yield _at(f"nested more than {_DEEPEST} levels deep", "Flatten it", mark)
            return
        anchor: str | None = getattr(event, "anchor", None)
        tag: str | None = getattr(event, "tag", None)
        if anchor is not None:
            word, sign = ("aliases", "*") if isinstance(event, yaml.AliasEvent) else ("anchors", "&")
            yield _at(f"no {word} ({sign}{shorten(anchor)}) in a recipe", "Write the value out", mark)
        if tag is not None:
            name = shorten(ascii(tag.replace("tag:yaml.org,2002:", "!!"))[1:-1])
            yield _at(f"no tags ({name}) in a recipe", "Write a plain value", mark)


def _broken_syntax(error: yaml.MarkedYAMLError) -> Problem:
    story = " ".join(f"{error.context or ''} {error.problem or ''}".split())
    seen, opened = error.problem_mark or error.context_mark, error.context_mark or error.problem_mark
    marks = {name: mark_of(mark) if mark else (1, 1) for name, mark in (("problem", seen), ("context", opened))}
    for pattern, where, fact, remedy in _WORDING:
        if re.search(pattern, story):
            return _at(fact, remedy, marks[where])
    return _at(f"not YAML: {shorten(story)}", "Put text with special characters in quotes", marks["problem"])


def _runaway_quote(text: str, error: yaml.MarkedYAMLError) -> Problem | None:
    """A forgotten quote ends at the next quote, some lines on: where it opens is the place to look."""
    where = error.problem_mark
    quotes = []
    with contextlib.suppress(yaml.YAMLError):
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.ScalarToken) and not token.plain and token.style in "'\"":
                quotes.append(token)
    for quote in quotes:
        ends = quote.end_mark.line
        if where is not None and quote.start_mark.line < ends == where.line:
            return _at(f"the quote opened here runs on to line {ends + 1}", "Close it", mark_of(quote.start_mark))
    return None


def _forbidden_character(text: str, error: yaml.reader.ReaderError) -> Problem:
    before = text[: error.position]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return _at(f"the character U+{ord(text[error.position]):04X} cannot stand in YAML", "Remove it", (line, column))


def _at(fact: str, remedy: str, mark: Mark) -> Problem:
    return Problem(path=(), fact=fact, remedy=remedy, mark=mark)
