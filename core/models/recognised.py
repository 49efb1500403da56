"""The formats that `core` recognises at a path, or why the files there are not a sound model."""

from __future__ import annotations

import os
from collections.abc import Collection

from core.errors import InvalidModelError, ModelAccessError, ModelError, ModelNotFoundError
from core.models.damage import INCOMPLETE, NO_PERMISSION
from core.models.files import check_exists, model_formats, read_config_json
from core.models.gguf import read_gguf
from core.models.stores import model_at
from core.models.weight_files import next_step
from core.types import DiscoveredModel, ModelFormat


def recognised(location: str) -> tuple[ModelFormat, ...]:
    """Return the formats that `core` recognises at a path; none where it knows of no model there.

    Raises `ModelNotFoundError` where nothing is there, and `ModelAccessError`.
    """
    check_exists(location)
    try:
        return model_formats(location)
    except (ModelNotFoundError, InvalidModelError):
        return ()


def formats_of(location: str) -> tuple[ModelFormat, ...]:
    """Return the formats of a model. Raises `ModelError`; of an incomplete download, it says so."""
    try:
        formats = model_formats(location)
    except ModelNotFoundError as error:
        raise _unrecognised(location, model_at(location), error) from None
    _check_header(location, formats)
    return formats


def _unrecognised(
    location: str, found: DiscoveredModel | None, error: ModelNotFoundError
) -> ModelError:
    """Return the error of a path in no format that `core` knows, by what discovery found there."""
    if found is None or (found.path == location and not found.problem):
        return error
    if found.problem:
        return _damaged(location, found)
    return ModelNotFoundError(
        f"{location!r} is not a model. The one model in it is {found.path!r}: give that path."
    )


def formats_of_found(location: str, found: DiscoveredModel | None) -> tuple[ModelFormat, ...]:
    """Return the formats of a model. Raises `ModelError` for what is wrong with its files."""
    read = found is None or found.problem.startswith(("broken", NO_PERMISSION))
    if found is not None and found.problem and not read:
        raise _damaged(location, found)

    # What is broken inside, or forbidden, its reader tells best.
    try:
        formats = model_formats(location)
    except ModelNotFoundError as error:
        raise _unrecognised(location, found, error) from None
    _check_header(location, formats)
    if found is not None and found.problem:
        if found.format == "gguf":
            read_gguf(found.path, tensors=True)
        raise _damaged(location, found)
    return formats


def _damaged(location: str, found: DiscoveredModel) -> ModelError:
    kind = ModelAccessError if found.problem == NO_PERMISSION else InvalidModelError
    return kind(f"{location!r} cannot be loaded: {found.problem}. {_again(found)}")


def _again(model: DiscoveredModel) -> str:
    if model.problem == NO_PERMISSION:
        return "Change its permissions, or run as a user who may read it."
    if model.adapters:
        return "Create or pull it again with Ollama, or give its parts by their paths."
    if model.problem.startswith("no safetensors"):
        return "Get it in safetensors, or as a GGUF file."
    if step := next_step(model.problem):
        return step
    if model.problem != INCOMPLETE:
        return "Download or convert it again."
    if model.source == "huggingface":
        return f"Go on with: hf download {model.name}"
    return "Let the program that downloads it end its work, or download it again."


def _check_header(location: str, formats: Collection[str]) -> None:
    # Broken files are an error of their own, not a refusal by every backend in turn.
    if tuple(formats) == ("safetensors",):
        read_config_json(location)
    elif os.path.isfile(location):
        read_gguf(location, only=("general.architecture",))
