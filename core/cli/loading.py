"""Choosing a backend and loading a model, the same way for every command."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from core import api, choosing
from core.choosing import BackendChoice, unavailability
from core.cli.discover import name_of
from core.cli.plugins import Hooks
from core.errors import BackendUnavailableError, ModelNotFoundError
from core.extensions import Explaining
from core.registry import REGISTRY
from core.types import Choice

if TYPE_CHECKING:
    from core.options import LoadConfig
    from core.protocols import Backend, TextModel


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model, what loaded it and why that, and how many seconds it took."""

    model: TextModel
    backend: Backend
    reason: str
    seconds: float

    def choices(self) -> list[Choice]:
        """What was chosen for the user: the backend, then what the model itself explains."""
        explained = self.model.choices() if isinstance(self.model, Explaining) else ()
        others = [choice for choice in explained if choice.name != "backend"]
        return [Choice("backend", self.backend.name, self.reason), *others]


def load(path: str, config: LoadConfig) -> Loaded:
    """Load a model with the backend named in ``config``, or with the best one for it.

    Raises what `core.load_model` raises; an error about a name that `discover` shows says where
    that model is. Plugins hear of a load as ``core_model_loaded``.
    """
    try:
        choice = choose(path, config.backend)
    except ModelNotFoundError as error:
        if known := _path_of(path):
            raise ModelNotFoundError(f"{error} Did you mean -m {shlex.quote(known)}?") from error
        raise
    name = choice.backend.name
    start = time.perf_counter()
    model = api.load_model(path, replace(config, backend=name))
    seconds = time.perf_counter() - start
    hooks = click.get_current_context().find_object(Hooks)
    if hooks is not None:
        hooks.emit("core_model_loaded", path=path, backend=name, seconds=seconds)
    return Loaded(model, choice.backend, choice.reason, seconds)


def _path_of(name: str) -> str | None:
    """Where the one discovered model of this name is; None for a path, and for no or many such."""
    if not name or os.path.basename(name) != name or os.path.lexists(name):
        return None
    paths = [model.path for model in api.discover() if name_of(model) == name]
    return paths[0] if len(paths) == 1 else None


def choose(path: str, name: str = "") -> BackendChoice:
    """The backend for a model, and why that one. Raises `BackendError` and `ModelError`."""
    if not name:
        return REGISTRY.choose(path)
    if (reason := unavailability(api.get_backend(name))) is not None:
        raise BackendUnavailableError(name, reason)
    choice = choosing.choose((name,), REGISTRY.get, path)  # does it read, and take, this model?
    return replace(choice, reason="asked for by name")
