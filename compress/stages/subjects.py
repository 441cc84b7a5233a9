"""What `compress analyze` is asked about: a reference of any form, resolved without building the model."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.analyze.llm_config import is_decoder
from compress.errors import CompressError, EnvironmentProblem, InputError
from compress.recipe.refs import load_ref
from compress.recipe.spec import Recipe
from compress.recipe.words import suggest
from compress.stages import transformer
from compress.stages.sample_inputs import InputSpec

IMAGE = InputSpec(shape=(1, 3, 224, 224))


@dataclass(frozen=True, kw_only=True)
class TorchSubject:
    """A module to be built. specs: inputs where the user gives none, when they can be known from the module.

    weightless: it is built on the meta device and cannot run; recipe, path: where model and data come from instead.
    """

    place: str
    build: Callable[[], Any]
    specs: Callable[[Any], Mapping[str, InputSpec]] = field(default=lambda _module: {})
    weightless: bool = False
    recipe: Recipe | None = None
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class FileSubject:
    """An ONNX file."""

    path: Path


@dataclass(frozen=True, kw_only=True)
class ConfigSubject:
    """A decoder-only language model by the sizes of its config.json."""

    sizes: Mapping[str, Any]
    place: str


Subject = TorchSubject | FileSubject | ConfigSubject


def subject_of(ref: str) -> Subject:
    """Resolve a reference. Raises InputError, or EnvironmentProblem naming the extra that is not installed."""
    kind, colon, name = ref.partition(":")
    if colon and kind in _KINDS:
        return _KINDS[kind](name)
    if ref.endswith(".onnx"):
        return _onnx(ref)
    if ref.endswith((".yaml", ".yml")):
        return _recipe(ref)
    if ref.endswith(".json") or Path(ref).is_dir():
        return _config(ref)
    factory = load_ref(ref, [Path.cwd()])
    return TorchSubject(place=ref, build=lambda: _called(ref, factory))


def _called(place: str, factory: Callable[[], Any]) -> Any:
    """Call the user's function; whatever it raises becomes one line."""
    try:
        return factory()
    except CompressError:
        raise
    except (Exception, SystemExit) as error:
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        fact = f"raised {type(error).__name__}: {line[:200]}"
        raise InputError(place, fact, "Call it by hand, or use -v") from error


def _onnx(name: str) -> FileSubject:
    if not Path(name).is_file():
        raise InputError(name, "no such file", "Name an ONNX file")
    return FileSubject(path=Path(name))


def _recipe(name: str) -> TorchSubject:
    from compress.recipe.load import load_recipe
    from compress.stages.inputs import load_model

    loaded = load_recipe(Path(name))
    return TorchSubject(
        place=name,
        build=lambda: load_model(loaded.recipe, loaded.path)[0],
        recipe=loaded.recipe,
        path=loaded.path,
    )


def _torchvision(name: str) -> TorchSubject:
    place = f"torchvision:{name}"
    require("torchvision", "vision", place)

    def build() -> Any:
        from torchvision.models import get_model, list_models

        known = list_models()
        if name.lower() not in known:
            raise InputError(place, "torchvision has no model of this name", suggest(name, known, label="It has"))
        return get_model(name, weights=None)

    return TorchSubject(place=place, build=lambda: _called(place, build), specs=lambda _module: {"input": IMAGE})


def _timm(name: str) -> TorchSubject:
    place = f"timm:{name}"
    require("timm", "vision", place)

    def build() -> Any:
        import timm

        if not timm.is_model(name):
            raise InputError(place, "timm has no model of this name", suggest(name, timm.list_models(), label="It has"))
        return timm.create_model(name, pretrained=False)

    def specs(module: Any) -> Mapping[str, InputSpec]:
        size = getattr(module, "default_cfg", {}).get("input_size", IMAGE.shape[1:])
        return {"input": InputSpec(shape=(1, *size))}

    return TorchSubject(place=place, build=lambda: _called(place, build), specs=specs)


def require(package: str, extra: str, place: str) -> None:
    """Raises EnvironmentProblem with the command that installs the package."""
    if importlib.util.find_spec(package) is None:
        raise EnvironmentProblem(
            place, f"{package} is not installed", f"Install it: pip install 'compress-ladder[{extra}]'"
        )


def _config(name: str) -> Subject:
    path = transformer.config_file(name)
    sizes = transformer.read_sizes(path)
    if is_decoder(sizes):
        return ConfigSubject(sizes=sizes, place=str(path))
    kind = transformer.model_type(sizes, str(path))
    require("transformers", "hf", f"{path} ({kind}, not a decoder-only model)")
    return TorchSubject(
        place=str(path),
        build=lambda: _called(str(path), lambda: transformer.build(sizes, str(path))),
        specs=transformer.input_specs,
        weightless=True,
    )


_KINDS: dict[str, Callable[[str], Subject]] = {
    "onnx": _onnx,
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _config,
}
