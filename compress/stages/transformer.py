"""Models of `transformers` from a config alone: built without weights, and nothing is ever fetched."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compress.errors import InputError
from compress.stages.sample_inputs import InputSpec

USUAL_TOKENS = 128
SAMPLES_PER_S = 16_000


def config_file(name: str) -> Path:
    """The config.json of a folder, a file, or a model in the local cache of the hub. Raises InputError."""
    path = Path(name)
    found = path / "config.json" if path.is_dir() else path
    if found.is_file():
        return found
    if path.is_dir():
        raise InputError(name, "holds no config.json", "Name the folder of a transformers model")
    if name.endswith(".json"):
        raise InputError(name, "no such file or folder", "Name the config.json of a model")
    cached = _cached(name)
    if cached is None:
        fact = "no such folder, and no such model in the local cache of the hub"
        remedy = "Nothing is fetched from here: download it first, or name the folder that holds its config.json"
        raise InputError(f"hf:{name}", fact, remedy)
    return cached


def _cached(name: str) -> Path | None:
    """Looked up on this disk alone."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def read_sizes(path: Path) -> dict[str, Any]:
    """The config as written. Raises InputError when it cannot be read."""
    try:
        sizes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read as JSON ({error})", "Name the config.json of a model") from error
    if not isinstance(sizes, dict):
        raise InputError(str(path), "holds no sizes", "Name the config.json of a model")
    return sizes


def model_type(sizes: Mapping[str, Any], place: str) -> str:
    """What kind of model a config is of. Raises InputError where it does not say."""
    kind = sizes.get("model_type")
    if not isinstance(kind, str):
        remedy = "Give a config.json with model_type, as save_pretrained writes it"
        raise InputError(place, "does not say which model it is of (no model_type)", remedy)
    return kind


def build(sizes: Mapping[str, Any], place: str) -> Any:
    """The module on the meta device: shapes without memory. Raises InputError for a kind of model it cannot build."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = model_type(sizes, place)
    if kind not in CONFIG_MAPPING:
        fact = f"model_type '{kind}' is not known to transformers {transformers.__version__}"
        raise InputError(place, fact, "Update transformers; code that comes with a model is not run")
    config = CONFIG_MAPPING[kind].from_dict(dict(sizes))
    # One pass is counted, and nothing is generated from it.
    config.use_cache = False
    architecture = next(iter(sizes.get("architectures") or []), "")
    chosen = getattr(transformers, str(architecture), None)
    with torch.device("meta"):
        return chosen(config) if chosen is not None else transformers.AutoModel.from_config(config)


def input_specs(module: Any) -> dict[str, InputSpec]:
    """One sample for a module of `transformers`, from its main input and the sizes of its config."""
    config, main = module.config, str(module.main_input_name)
    tokens = _tokens(config)
    specs = {main: _main(main, config, tokens)}
    if "attention_mask" in _parameters(module) and main == "input_ids":
        specs["attention_mask"] = tokens
    if main == "input_ids" and hasattr(config, "vision_config"):
        specs["pixel_values"] = _image(config.vision_config)
    if getattr(config, "is_encoder_decoder", False):
        specs["decoder_input_ids"] = InputSpec(shape=(1, 1), dtype="int64")
    return specs


def _main(name: str, config: Any, tokens: InputSpec) -> InputSpec:
    if name == "pixel_values":
        return _image(config)
    if name == "input_features" and hasattr(config, "num_mel_bins"):
        # Whisper's first convolutions halve the frames that its positions count.
        frames = 2 * getattr(config, "max_source_positions", 1500)
        return InputSpec(shape=(1, config.num_mel_bins, frames))
    if name == "input_values":
        return InputSpec(shape=(1, SAMPLES_PER_S))
    return tokens


def _tokens(config: Any) -> InputSpec:
    """As many as the model has positions for, if these are few."""
    positions = getattr(getattr(config, "text_config", config), "max_position_embeddings", USUAL_TOKENS)
    return InputSpec(shape=(1, min(USUAL_TOKENS, int(positions))), dtype="int64")


def _image(config: Any) -> InputSpec:
    size = getattr(config, "image_size", 224)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return InputSpec(shape=(1, int(getattr(config, "num_channels", 3)), int(height), int(width)))


def _parameters(module: Any) -> set[str]:
    import inspect

    return set(inspect.signature(module.forward).parameters)
