"""Choosing a backend and loading a model, the same way for every command."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from core import api, choosing
from core.choosing import BackendChoice
from core.cli import output
from core.cli.discover import name_of
from core.cli.plugins import Hooks
from core.errors import (
    InvalidModelError,
    ModelNotFoundError,
    TokenizerError,
    UnsupportedModelError,
)
from core.extensions import Explaining
from core.models.files import resolve_path
from core.protocols import Capability
from core.registry import REGISTRY
from core.support import unsupported
from core.types import Choice

if TYPE_CHECKING:
    from core.options import LoadConfig
    from core.protocols import Backend, TextModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model, the backend that loaded it, the reason for that one, and the seconds."""

    model: TextModel
    backend: Backend
    reason: str
    seconds: float

    def choices(self) -> list[Choice]:
        """The choices made for the user: the backend, then those that the model itself explains."""
        explained = self.model.choices() if isinstance(self.model, Explaining) else ()
        others = [choice for choice in explained if choice.name != "backend"]
        return [Choice("backend", self.backend.name, self.reason), *others]


def load(path: str, config: LoadConfig, needed: Capability | None = None) -> Loaded:
    """Load a model with the backend named in ``config``, or with the best one for it.

    It offers what is ``needed``. Raises what `core.load_model` raises; an error about a name that
    `discover` shows says where that model is. Plugins hear of a load as ``core_model_loaded``.
    """
    # Choose the backend.
    try:
        choice = choose(path, config.backend, needed)
    except ModelNotFoundError as error:
        raise with_known_path(error, path) from error
    name = choice.backend.name

    output.hear_logs()
    start = time.perf_counter()
    try:
        # Not by core.load_model, which would ask once more whether the backend can run here.
        model = choice.backend.load_model(resolve_path(path), replace(config, backend=name))
    except (InvalidModelError, TokenizerError, UnsupportedModelError) as error:
        raise choosing.with_refusals(error, choice) from error
    seconds = time.perf_counter() - start

    hooks = click.get_current_context().find_object(Hooks)
    if hooks is not None:
        hooks.emit("core_model_loaded", path=path, backend=name, seconds=seconds)
    return Loaded(model, choice.backend, choice.reason, seconds)


def with_known_path(error: ModelNotFoundError, name: str) -> ModelNotFoundError:
    """The error, with the path of the model that `discover` shows under this name, if one."""
    known = _path_of(name)
    hint = f" Did you mean {shlex.quote(known)}?" if known else ""
    return ModelNotFoundError(f"{error}{hint}")


def _path_of(name: str) -> str | None:
    """The path of the one discovered model of this name.

    None for a path, and where no model or several have the name.
    """
    if not name or name.count("/") > 1 or name.startswith(("/", ".", "~")) or os.path.lexists(name):
        return None

    paths = [model.path for model in api.discover() if name_of(model) == name]
    return paths[0] if len(paths) == 1 else None


def choose(path: str, name: str = "", needed: Capability | None = None) -> BackendChoice:
    """Choose the backend for a model. Raises `BackendError` and `ModelError`.

    Raises `UnsupportedOperationError` when the one asked for by name lacks what is ``needed``.
    """
    if not name:
        return REGISTRY.choose(path, needed)

    # One that is asked for by name must take the model, and offer what is needed.
    location = resolve_path(path)
    backend = REGISTRY.suited(name, location)
    if refused := choosing.refusal(backend, location):
        raise UnsupportedModelError(f"Backend {name!r} does not load {location!r}: {refused}")
    if needed is not None and needed not in backend.capabilities:
        raise unsupported(needed, name)
    return BackendChoice(backend, "asked for by name")
