"""The formats that `core` recognises at a path, or the errors of the files there."""

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
    """Return the formats that `core` recognises at a path; none if it recognises no model.

    Raises `ModelNotFoundError` if the path does not exist, and `ModelAccessError`.
    """
    check_exists(location)
    try:
        return model_formats(location)
    except (ModelNotFoundError, InvalidModelError):
        return ()


def formats_of(location: str) -> tuple[ModelFormat, ...]:
    """Return the formats of a model. Raises `ModelError`, which reports incomplete downloads."""
    try:
        formats = model_formats(location)
    except ModelNotFoundError as error:
        raise _unrecognised(location, model_at(location), error) from None
    _check_header(location, formats)
    return formats


def _unrecognised(
    location: str, found: DiscoveredModel | None, error: ModelNotFoundError
) -> ModelError:
    """Return the error of a path in an unknown format, using what discovery found there."""
    if found is None or (found.path == location and not found.problem):
        return error
    if found.problem:
        return _damaged(location, found)
    return ModelNotFoundError(
        f"{location!r} is not a model, but contains one. Pass its path: {found.path!r}."
    )


def formats_of_found(location: str, found: DiscoveredModel | None) -> tuple[ModelFormat, ...]:
    """Return the formats of a model. Raises `ModelError` for damage to its files."""
    read = found is None or found.problem.startswith(("broken", NO_PERMISSION))
    if found is not None and found.problem and not read:
        raise _damaged(location, found)

    # For broken contents or missing permissions, the reader's error is the most precise.
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
        return "Check the permissions of the file and of its parent directories."
    if model.adapters:
        return "Create or pull it again with Ollama, or pass its parts by their paths."
    if model.problem.startswith("no safetensors"):
        return "Download it in safetensors, or as a GGUF file."
    if step := next_step(model.problem):
        return step
    if model.problem != INCOMPLETE:
        return "Download or convert it again."
    if model.source == "huggingface":
        return f"Resume the download: hf download {model.name}"
    return "Wait for the running download, or download it again."


def _check_header(location: str, formats: Collection[str]) -> None:
    # Broken files are an error of their own, not a refusal by every backend in turn.
    if tuple(formats) == ("safetensors",):
        read_config_json(location)
    elif os.path.isfile(location):
        read_gguf(location, only=("general.architecture",))
