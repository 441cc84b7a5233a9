"""Files of optional packages that carry pretrained weights, found without importing the package."""

from importlib.util import find_spec
from pathlib import Path

from compress.errors import EnvironmentProblem


def package_file(package: str, inside: str, *, extra: str) -> Path:
    """The file `inside` the installed `package`. Raises EnvironmentProblem with the command that installs `extra`."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / inside).is_file():
            return Path(folder) / inside
    fact = "is not installed" if spec is None else f"holds no file {inside}"
    raise EnvironmentProblem(f"package {package}", fact, install(extra))


def install(extra: str) -> str:
    return f"Install it with: pip install 'compress-ladder[{extra}]'"
