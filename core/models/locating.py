"""The model that a user means: by its path or by a name, with the formats at its path.

Names that ``discover`` lists are accepted in place of a path.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from core import log
from core.errors import (
    InvalidModelError,
    InvalidOptionError,
    ModelAccessError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from core.models.files import (
    HOW_TO_GET,
    check_exists,
    is_address,
    model_formats,
    read_config_json,
    resolve_path,
)
from core.models.gguf import read_gguf
from core.models.ollama import TENSOR, unapplied
from core.models.stores import discover_stores, model_at, snapshots_of
from core.models.weight_files import INCOMPLETE, NO_PERMISSION, next_step
from core.options import LoadConfig
from core.types import DiscoveredModel, ModelFormat

_PARTS = re.compile(r"[-_:/]*[^-_:/]+")  # parts of a name; prefixes of names end with one
_MOST_PARTS = 4  # org/name/folder/file.gguf; anything with more parts is a path


@dataclass(frozen=True, slots=True)
class Located:
    """The absolute path of a model, and the discovered model if it was given by name."""

    path: str
    model: DiscoveredModel | None = None

    def described(self, description: DiscoveredModel | None) -> DiscoveredModel | None:
        """Return the description of the model at the path, with all parts of its name."""
        if self.model is None or description is None:
            return description or self.model
        return replace(
            description,
            names=self.model.names,
            problem=description.problem or self.model.problem,
            parts=self.model.parts,
            adapters=self.model.adapters,
        )

    def adapted(self, config: LoadConfig) -> LoadConfig:
        """Return the options of a load with the adapter that the model's name includes.

        Raises `InvalidOptionError` if another adapter is requested, and `UnsupportedModelError` if
        the name includes several, or files that no backend reads.
        """
        if self.model is None:
            return config
        _refuse_tensors(self.model)
        if not self.model.adapters:
            return config
        if len(self.model.adapters) > 1:
            raise UnsupportedModelError(
                _parted(self.model, "several adapters; only one can be used")
            )
        if config.adapter_path is not None:
            what = f"None, because {self.model.name!r} already has an adapter in Ollama's store"
            raise InvalidOptionError("adapter_path", config.adapter_path, what)
        return replace(config, adapter_path=self.model.adapters[0])


def locate(model: str | os.PathLike[str]) -> str:
    """Return the absolute path of a model, given by its path or by its name.

    For callers that need one file or directory: raises `UnsupportedModelError` for a name of
    Ollama's store that includes an adapter, or single tensors, and the errors of `located`.
    """
    place = located(model)
    if place.model is not None:
        _refuse_tensors(place.model)
        if place.model.adapters:
            what = "an adapter, but one path is needed here"
            raise UnsupportedModelError(_parted(place.model, what))
    return place.path


def located(model: str | os.PathLike[str]) -> Located:
    """Return the location of a model, given by its path or by its name.

    An existing path is a path, and so is a text that looks like one. A name is first compared
    exactly, with the names that `discover` lists first, then ignoring case and ``.gguf``, and then
    as the start of exactly one model's name. A repository of the Hugging Face cache stands for its
    snapshot. The address of a server (``http://host:port#model``) is returned unchanged.

    Raises `ModelNotFoundError` for an unknown or ambiguous name, and for a path that
    `core.models.files.resolve_path` rejects. It does not check whether a path exists.
    """
    location = resolve_path(model)
    if is_address(location):
        return Located(location)
    if isinstance(model, str) and not _is_path(model) and _is_nowhere(location):
        named = _called(model, location)
        return Located(named.path, named)
    return Located(_snapshot(location))


def log_unapplied(place: Located) -> None:
    """Log which parts of a model, given by a name of Ollama's store, are not loaded."""
    if place.model is not None and place.model.parts:
        log.unapplied(place.model.name, list(unapplied(place.model)))


def _refuse_tensors(model: DiscoveredModel) -> None:
    if TENSOR in model.parts:
        raise UnsupportedModelError(
            f"{model.name!r} of Ollama's store cannot be loaded: {model.problem}. Download it in "
            "safetensors, or as a GGUF file."
        )


def _parted(model: DiscoveredModel, what: str) -> str:
    adapters = "".join(f"\n  adapter_path: {path}" for path in model.adapters)
    return (
        f"{model.name!r} of Ollama's store is a model with {what}. Pass its parts by their paths:"
        f"\n  model: {model.path}{adapters}"
    )


def _is_path(text: str) -> bool:
    return (
        text.startswith((".", "~"))
        or text.endswith(os.sep)
        or os.path.isabs(text)
        or len(text.split("/")) > _MOST_PARTS
    )


def _is_nowhere(location: str) -> bool:
    """Return whether a path certainly does not exist.

    If it cannot be checked, later code reports why.
    """
    try:
        os.lstat(location)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):  # no permission, too long, a null character
        return False
    return False


def _snapshot(location: str) -> str:
    if not os.path.basename(location).startswith("models--"):
        return location
    snapshots = snapshots_of(location)
    return snapshots[0] if len(snapshots) == 1 else location


def _called(name: str, location: str) -> DiscoveredModel:
    """Return the one model with this name; among equal matches, the one without a problem."""
    models = discover_stores(examine=False)
    whole = [model for model in models if not model.problem]
    for tests in _tests(name):
        for among in (whole, models):
            for fits in tests:
                matches = [model for model in among if fits(model)]
                if len(matches) == 1:
                    return matches[0]
                if matches:
                    raise ModelNotFoundError(_ambiguous(name, matches))
    raise ModelNotFoundError(_unknown(name, location, models))


def _tests(name: str) -> Sequence[Sequence[Callable[[DiscoveredModel], bool]]]:
    """Return the tests whether a name means a model, from the strictest to the loosest."""
    plain = _plain(name)
    exactly = (lambda model: model.name == name, lambda model: name in model.names)
    loosely = (lambda model: plain in map(_plain, model.names),)
    as_beginning = (lambda model: any(_plain(other).startswith(plain) for other in model.names),)
    return exactly, loosely, as_beginning


def _plain(name: str) -> str:
    return name.casefold().removesuffix(".gguf")


def _ambiguous(name: str, matches: Iterable[DiscoveredModel]) -> str:
    lines = "".join(f"\n  {model.name}: {model.path}" for model in matches)
    return f"Ambiguous model name {name!r}. Pass a longer name, or a path, of one of these:{lines}"


def _unknown(name: str, location: str, models: Iterable[DiscoveredModel]) -> str:
    # The start of a name is enough, so a misspelt name resembles the start of a name.
    known = {
        beginning: other
        for model in models
        for other in model.names
        for beginning in accumulate(_PARTS.findall(_plain(other)))
    }
    near = difflib.get_close_matches(_plain(name), known, n=3)
    meant = dict.fromkeys(known[near_name] for near_name in near)
    hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return (
        f"Model not found: {location!r} does not exist, and no model on this machine is named "
        f"{name!r}.{hint} {HOW_TO_GET}"
    )


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
    location: str, model: DiscoveredModel | None, error: ModelNotFoundError
) -> ModelError:
    """Return the error of a path in an unknown format, using what discovery found there."""
    if model is None or (model.path == location and not model.problem):
        return error
    if model.problem:
        return _damaged(location, model)
    return ModelNotFoundError(
        f"{location!r} is not a model, but contains one. Pass its path: {model.path!r}."
    )


def formats_of_found(location: str, model: DiscoveredModel | None) -> tuple[ModelFormat, ...]:
    """Return the formats of a model. Raises `ModelError` for damage to its files."""
    read = model is None or model.problem.startswith(("broken", NO_PERMISSION))
    if model is not None and model.problem and not read:
        raise _damaged(location, model)

    # For broken contents or missing permissions, the reader's error is the most precise.
    try:
        formats = model_formats(location)
    except ModelNotFoundError as error:
        raise _unrecognised(location, model, error) from None
    _check_header(location, formats)
    if model is not None and model.problem:
        if model.format == "gguf":
            read_gguf(model.path, tensors=True)
        raise _damaged(location, model)
    return formats


def _damaged(location: str, model: DiscoveredModel) -> ModelError:
    kind = ModelAccessError if model.problem == NO_PERMISSION else InvalidModelError
    return kind(f"{location!r} cannot be loaded: {model.problem}. {_again(model)}")


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
