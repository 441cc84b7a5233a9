"""Finding and reading the report of a run."""

import difflib
import json
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compress.errors import InputError
from compress.report.schema import SCHEMA, Report

REPORT_FILE = "report.json"
RUNS = Path("runs")


def resolve_run(run: str, runs: Path = RUNS) -> Path:
    """The run's folder, from a run folder, a report.json or a recipe's name (the newest run under `runs`/NAME).

    A run counts once its report.json exists. Raises InputError when there is none.
    """
    path = Path(run)
    if path.name == REPORT_FILE and path.is_file():
        return path.parent
    places = [path]
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]*", run):  # a recipe's name, never a path that climbs out of `runs`
        places.append(runs / run)
    for place in places:
        if (place / REPORT_FILE).is_file():
            return place
        if newest := _newest(place):
            return newest
    raise _not_found(run, path, runs)


def read_report(path: Path) -> Report:
    """The report at `path`, a report.json or its folder. Raises InputError: missing, broken, other version."""
    file = path / REPORT_FILE if path.is_dir() else path
    record = _json_object(file)
    version = record.get("schema")
    if version != SCHEMA:
        raise InputError(
            f"{file}: schema", f"found {version!r}, this version reads {SCHEMA!r}", _version_remedy(version)
        )
    try:
        return Report.model_validate(record)
    except ValidationError as error:
        raise _invalid(file, error) from error


def _invalid(file: Path, error: ValidationError) -> InputError:
    # A number may be an int or a float, and pydantic reports it once as each.
    said = {
        ".".join(str(part) for part in each["loc"] if part not in ("int", "float")): each["msg"]
        for each in reversed(error.errors(include_url=False))
    }
    key, message = list(said.items())[-1]
    more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
    place = f"{file}: {key}" if key else str(file)
    return InputError(place, f"{message}{more}", "Run the recipe again to write a whole report")


def _json_object(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(
            str(file), "no such file", "Give a run's folder, its report.json or a recipe's name"
        ) from error
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise InputError(place, f"not JSON: {error.msg}", "Run the recipe again to write a whole report") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(str(file), f"cannot be read: {error}", "Check the file and its permissions") from error
    if not isinstance(record, dict):
        raise InputError(
            str(file), f"holds a {type(record).__name__}, not a report", f"A report is an object with schema {SCHEMA!r}"
        )
    return record


def _version_remedy(version: object) -> str:
    if isinstance(version, str) and version.startswith("compress.report/"):
        return "Install the version of compress that wrote it, or run the recipe again"
    return "Give the report.json of a run"


def _newest(folder: Path) -> Path | None:
    # Runs are named by their time, so the last name is the newest run.
    finished = sorted(report.parent for report in folder.glob(f"*/{REPORT_FILE}")) if folder.is_dir() else []
    return finished[-1] if finished else None


def _not_found(run: str, path: Path, runs: Path) -> InputError:
    if path.is_file():
        return InputError(
            run, "this file is not a report", f"Give a run's folder, its {REPORT_FILE} or a recipe's name"
        )
    if path.is_dir() or (runs / run).is_dir():
        place = path if path.is_dir() else runs / run
        return InputError(
            str(place), f"holds no run with a {REPORT_FILE}", "Wait for the run to end, or run the recipe again"
        )
    names = sorted(report.parent.parent.name for report in runs.glob(f"*/*/{REPORT_FILE}"))
    close = difflib.get_close_matches(run, names, n=1)
    hint = (
        f"Did you mean '{close[0]}'?"
        if close
        else f"Recipes with runs in {runs}/: {', '.join(dict.fromkeys(names)) or 'none'}"
    )
    return InputError(run, "no such run folder, and no recipe of this name has a run", hint)
