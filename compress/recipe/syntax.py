"""What is wrong with YAML text before its values matter: broken syntax, and the parts of YAML that a recipe does without."""

import re
from collections.abc import Iterator

import yaml

from compress.recipe.places import Mark, Problem
from compress.recipe.words import shorten

_SPELL_OUT = "Write the value out"
# The parser's wording, where the fault is seen, what to say, what to do. "context" is where the broken construct opens.
_WORDING = (
    (r"found character '\\t'", "problem", "a tab where YAML wants spaces", "Indent with spaces"),
    (r"quoted scalar .*(end of stream|document separator)", "context", "the quote opened here is never closed", ""),
    (r"flow (sequence|mapping) ", "context", "the bracket opened here is not closed", "Close it, or add the missing comma"),
    (r"mapping values are not allowed", "problem", "a ': ' that does not belong here", "Check the indentation, or quote the text"),
    (r"could not find expected ':'", "context", "neither `key: value` nor a list item", "Add the ':' after the key"),
    (r"block (mapping|collection|sequence) ", "problem", "the indentation does not fit the lines above", "Align it with its neighbours"),
    (r"unknown escape character", "problem", "an unknown escape in double quotes", "Use single quotes, or \\\\ for a backslash"),
    (r"found character '[@`%]'", "problem", "text cannot start with this character", "Put it in quotes"),
    (r"did not find expected <document start>", "problem", "text after the end of the recipe", "Check the indentation"),
)  # fmt: skip


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
        found.append(_broken_syntax(error))
    except (ValueError, OverflowError):  # an escape such as "\\U00110000" names no character
        found.append(_at("an escape that names no character", "Write the character itself", mark_of(loader.get_mark())))
    except RecursionError:
        found.append(_at("nested too deeply", "Flatten it", (1, 1)))
    return tuple(found)


def mark_of(mark: yaml.Mark) -> Mark:
    """Line and column from 1, as editors count."""
    return mark.line + 1, mark.column + 1


def _refused_parts(loader: yaml.SafeLoader) -> Iterator[Problem]:
    documents = 0
    while loader.check_event():
        event = loader.get_event()
        mark = mark_of(event.start_mark)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            yield _at("a second document starts here", "Keep one recipe per file", mark)
            return
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            yield _at(f"no aliases (*{shorten(anchor)}) in a recipe", _SPELL_OUT, mark)
        elif anchor is not None:
            yield _at(f"no anchors (&{shorten(anchor)}) in a recipe", _SPELL_OUT, mark)
        if tag is not None:
            name = shorten(ascii(tag.replace("tag:yaml.org,2002:", "!!"))[1:-1])
            yield _at(f"no tags ({name}) in a recipe", "Write plain text, numbers, lists and mappings", mark)


def _broken_syntax(error: yaml.MarkedYAMLError) -> Problem:
    story = " ".join(f"{error.context or ''} {error.problem or ''}".split())
    marks = {"problem": error.problem_mark or error.context_mark, "context": error.context_mark or error.problem_mark}
    for pattern, where, fact, remedy in _WORDING:
        if re.search(pattern, story):
            return _at(fact, remedy or "Close it", mark_of(marks[where]))
    return _at(f"not YAML: {shorten(error.problem or story)}", "Put text with special characters in quotes", mark_of(marks["problem"]))


def _forbidden_character(text: str, error: yaml.reader.ReaderError) -> Problem:
    before = text[: error.position]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return _at(f"the character U+{ord(text[error.position]):04X} cannot stand in YAML", "Remove it", (line, column))


def _at(fact: str, remedy: str, mark: Mark) -> Problem:
    return Problem(path=(), fact=fact, remedy=remedy, mark=mark)
