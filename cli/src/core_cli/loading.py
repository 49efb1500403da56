"""Selects a backend and loads a model, in the same way for every command."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from core import choosing, log
from core.choosing import BackendChoice
from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    ModelNotFoundError,
    TokenizerError,
    UnsupportedModelError,
    UnsupportedOperationError,
)
from core.extensions import Explaining
from core.kit.support import load_needs, offered, unsupported
from core.models.fingerprint import remember
from core.models.locating import located, log_unapplied, recognised
from core.protocols import Capability
from core.registry import REGISTRY
from core.types import Choice
from core_cli import output
from core_cli.plugins import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from core.options import LoadConfig
    from core.protocols import Backend, TextModel


UNSUPPORTED = (BackendUnavailableError, UnsupportedModelError, UnsupportedOperationError)
"""The errors of `choose` if no backend, or not the named one, supports an operation of a model."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model, its backend, the reason for that backend, and the load time in seconds.

    ``location`` is the model's path.
    """

    location: str
    model: TextModel
    backend: Backend
    reason: str
    seconds: float

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Operations that the model supports."""
        return offered(self.model, self.backend)

    def choices(self) -> list[Choice]:
        """Return the settings chosen at load: the backend, then the choices of the model."""
        explained = self.model.choices() if isinstance(self.model, Explaining) else ()
        others = [choice for choice in explained if choice.name != "backend"]
        return [Choice("backend", self.backend.name, self.reason), *others]


def load(
    path: str,
    config: LoadConfig,
    needed: Capability | None = None,
    usual: Mapping[str, object] | None = None,
    instead: Capability | None = None,
) -> Loaded:
    """Load a model with the backend named in ``config``, or with the best one for it.

    The model supports the ``needed`` operation, or ``instead``. ``usual`` are default
    backend-specific options, for a backend that has them. Raises what `core.load_model` raises.
    Plugins are notified with ``core_model_loaded``.
    """
    place = located(path)
    location, config = place.path, place.adapted(config)
    choice = _choose_either(location, config, needed, instead)
    name = choice.backend.name
    known = choosing.own_options(choice.backend)
    added = {option: value for option, value in (usual or {}).items() if option in known}
    config = replace(config, backend=name, options={**added, **config.options})

    output.hear_logs()
    log_unapplied(place)
    start = time.perf_counter()
    try:
        # Without core.load_model, which would check again whether the backend can run here.
        model = choice.backend.load_model(location, config)
    except (InvalidModelError, TokenizerError, UnsupportedModelError) as error:
        raise choosing.with_refusals(error, choice) from error
    seconds = time.perf_counter() - start
    remember(model, location, config.adapter_path)
    log.loaded(location, name, model, seconds)

    hooks = click.get_current_context().find_object(Hooks)
    if hooks is not None:
        hooks.emit("core_model_loaded", path=path, backend=name, seconds=seconds)
    return Loaded(location, model, choice.backend, choice.reason, seconds)


def _choose_either(
    location: str, config: LoadConfig, needed: Capability | None, instead: Capability | None
) -> BackendChoice:
    of_options = [*load_needs(config).values()]
    try:
        return choose(location, config.backend, needed, of_options)
    except UNSUPPORTED as missing:
        if instead is None:
            raise
        try:
            return choose(location, config.backend, instead, of_options)
        except UNSUPPORTED:
            raise missing from None


def explain(loaded: Loaded) -> None:
    """Print the settings chosen at load, with reasons, on stderr."""
    for choice in loaded.choices():
        output.say(f"{choice.name}: {choice.value} ({choice.reason})")
    output.say(f"loaded in {loaded.seconds:.2f} s")


def choose(
    location: str,
    name: str = "",
    needed: Capability | None = None,
    of_options: Iterable[Capability] = (),
) -> BackendChoice:
    """Choose the backend for the model at a path. Raises `BackendError` and `ModelError`.

    Raises `UnsupportedOperationError` if the named backend does not support ``needed``.
    ``of_options``: the capabilities for the load's options, which a named backend checks itself.
    """
    if not name:
        return REGISTRY.choose(location, *filter(None, (needed, *of_options)))

    # A named backend must accept the model and support the operation.
    backend = REGISTRY.suited(name, location)
    if refused := choosing.refusal(backend, location):
        kind = UnsupportedModelError if recognised(location) else ModelNotFoundError
        raise kind(f"Backend {name!r} cannot load {location!r}: {refused}")
    if needed is not None and needed not in backend.capabilities:
        raise unsupported(needed, name)
    return BackendChoice(backend, "asked for by name")
