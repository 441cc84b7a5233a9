"""Inputs for a model that is analyzed without data: shapes as a user writes them, and arrays made to fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compress.data import Array
from compress.errors import InputError
from compress.recipe.words import suggest

OPTION = "--input-shape"
EXAMPLE = "Write it like 1,3,224,224 or ids=1,128:int64"
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """One input: its sizes, batch first, and its type; None is float32, or what an ONNX file says."""

    shape: tuple[int, ...]
    dtype: str | None = None

    @property
    def tokens(self) -> bool:
        """Whether it is a row of token numbers or a mask over them (n, tokens)."""
        return len(self.shape) == 2 and (self.dtype or "").startswith("int")


Specs = Mapping[str, InputSpec]
Given = Sequence[tuple[str | None, InputSpec]]


def parse_shapes(texts: Sequence[str]) -> list[tuple[str | None, InputSpec]]:
    """`1,3,224,224`, `name=1,128` or `name=1,128:int64`, in order. Raises InputError with an example."""
    found: list[tuple[str | None, InputSpec]] = []
    for text in texts:
        name, equals, rest = text.rpartition("=")
        if equals and name in [known for known, _ in found]:
            raise InputError(OPTION, f"two shapes for '{name}'", "Give each input once")
        if equals and not name:
            raise InputError(OPTION, f"'{text}' is no shape", EXAMPLE)
        found.append((name if equals else None, _parsed(rest, text)))
    return found


def _parsed(rest: str, text: str) -> InputSpec:
    sizes, colon, dtype = rest.partition(":")
    if colon and dtype not in DTYPES:
        raise InputError(OPTION, f"'{dtype}' is no type", suggest(dtype, DTYPES, label="Known"))
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InputError(OPTION, f"'{text}' is no shape", EXAMPLE)
    return InputSpec(shape=shape, dtype=dtype or None)


def named(given: Given, parameters: Sequence[str], place: str) -> dict[str, InputSpec]:
    """Every shape with a name, in the order of the parameters: unnamed ones go to those that nobody named.

    parameters: of forward, or inputs of a file. Raises InputError for a name it does not have, or a shape too many.
    """
    for name, _ in given:
        if name is not None and name not in parameters:
            raise InputError(place, f"has no input '{name}'", suggest(name, list(parameters), label="It has"))
    taken = {name for name, _ in given}
    free = iter([name for name in parameters if name not in taken])
    found = {}
    for name, spec in given:
        chosen = name or next(free, None)
        if chosen is None:
            fact = f"{len(given)} shapes for {len(parameters)} inputs ({', '.join(parameters) or 'none'})"
            raise InputError(place, fact, "Give each input once; those of *args need names in forward")
        found[chosen] = spec
    return {name: found[name] for name in parameters if name in found}


def resized(specs: Specs, *, batch: int | None, seq: int | None) -> dict[str, InputSpec]:
    """With the first size of every input set to `batch`, and the second of integer inputs (n, tokens) to `seq`.

    Raises InputError for `seq` where no input is a row of tokens.
    """
    if seq is not None and specs and not any(spec.tokens for spec in specs.values()):
        raise InputError("--seq", "no input is an integer array (n, tokens)", f"Give its shape with {OPTION}")
    found = {}
    for name, spec in specs.items():
        shape = (batch or spec.shape[0], *spec.shape[1:])
        found[name] = replace(spec, shape=(shape[0], seq) if seq is not None and spec.tokens else shape)
    return found


def made_up(specs: Specs, rows: int | None) -> dict[str, Array]:
    """Arrays by name: floats are normal noise; integers are row numbers of a table; masks are all ones.

    rows: of the smallest table that integers may look into; None where there is none, then integers are 0.
    Raises InputError for a type that NumPy has no numbers of.
    """
    rng = np.random.default_rng(0)
    return {name: _array(name, spec, rows or 1, rng) for name, spec in specs.items()}


def _array(name: str, spec: InputSpec, rows: int, rng: np.random.Generator) -> Array:
    dtype = spec.dtype or "float32"
    if dtype not in DTYPES:
        raise InputError(f"input '{name}'", f"is {dtype}", "Use --no-measure for inputs of other types")
    if dtype.startswith("float"):
        return rng.standard_normal(spec.shape, np.float32).astype(dtype)
    if "mask" in name or dtype == "bool":
        return np.ones(spec.shape, dtype)
    # Narrow integers are values such as pixels; no table is asked for more rows than the type can name.
    return rng.integers(0, min(rows, int(np.iinfo(dtype).max)), spec.shape).astype(dtype)
