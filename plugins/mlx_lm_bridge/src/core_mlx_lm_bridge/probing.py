"""Refusal of models that mlx-lm cannot run, from config.json and file names only."""

from __future__ import annotations

import functools
import importlib.util
import os
from fnmatch import fnmatch
from pathlib import Path

from core.errors import CoreError, InvalidModelError
from core.models.files import model_formats, read_config_json, resolve_path
from core_mlx_lm_bridge.ignored import ignored, refusal_of
from core_mlx_lm_bridge.model_code import renamed

# What transformers makes a tokeniser of.
_TOKENISERS = ("tokenizer*", "vocab.*", "*.model", "*.tiktoken", "tekken.json")


def refusal(path: str | os.PathLike[str]) -> str | None:
    """Return the reason why mlx-lm cannot run a model; None if no reason is known."""
    try:
        config = checked_config(path)
    except CoreError as error:
        return str(error)
    if config.get("model_file") is not None:
        return f"{path} requires code from the model repository, which is never run."
    model_type = str(config["model_type"])
    package = _package()
    known = known_model_types()
    if known and model_type not in known:
        return f"mlx-lm has no code for the model type {model_type!r} of {path}."
    if not _has_tokeniser(resolve_path(path)):
        names = ", ".join(_TOKENISERS)
        return f"{path} has no tokeniser file (one of {names}). Download it as well."
    if package is not None:
        keys = ignored(package, resolve_path(path), config).keys
        return refusal_of(keys) if keys else None
    return None


def _has_tokeniser(directory: str) -> bool:
    return any(fnmatch(name, kind) for name in os.listdir(directory) for kind in _TOKENISERS)


def checked_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the config.json of a directory that mlx-lm can read. Raises `ModelError`."""
    directory = resolve_path(path)
    model_formats(directory)  # raises if it is not a model
    config = read_config_json(directory)
    if not isinstance(config.get("model_type"), str):
        raise InvalidModelError(
            f"{directory}/config.json has no model_type. Download or convert the model again."
        )
    if not any(name.startswith("model") for name in _weights(directory)):
        raise InvalidModelError(
            f"{directory} has no model*.safetensors, the files that mlx-lm reads. "
            "Download or convert the model again."
        )
    return config


def known_model_types() -> set[str]:
    """Return the model types of the mlx-lm that is installed here.

    Empty if it is not installed, or cannot be read.
    """
    package = _package()
    return set() if package is None else set(_model_types(package))


def _package() -> Path | None:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


@functools.cache
def _model_types(package: Path) -> frozenset[str]:
    try:
        own = {file.stem for file in (package / "models").glob("*.py")}
        return frozenset(own | set(renamed(package)))
    except (OSError, SyntaxError, ValueError):
        return frozenset()


def _weights(directory: str) -> list[str]:
    return [name for name in os.listdir(directory) if name.endswith(".safetensors")]
