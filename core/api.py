"""The functions that users call: load a model, list backends, find models."""

from __future__ import annotations

import os
import time
from typing import Unpack

from core import log, validate
from core.base import TextModelBase
from core.choosing import with_refusals
from core.errors import InvalidModelError, TokenizerError, UnsupportedModelError
from core.models.fingerprint import remember
from core.models.names import located
from core.models.stores import discover_in, discover_stores
from core.older import adapted
from core.option_docs import options_named
from core.options import LoadConfig, LoadOptions, resolve_load
from core.protocols import Backend, TextModel
from core.registry import REGISTRY, BackendEntry
from core.secret import hidden
from core.types import BackendStatus, DiscoveredModel


@options_named
def load_model(
    path: str | os.PathLike[str],
    config: LoadConfig | None = None,
    /,
    **options: Unpack[LoadOptions],
) -> TextModel:
    """Load the model at ``path``: a directory with config.json and safetensors, or a GGUF file.

    It may also be a name that `discover` shows, ``org/name``, Ollama's ``name:tag`` (with its
    adapter; what else it has is logged), or the address of a server, ``http://host:port#model``
    (docs/remote.md). A backend that is named gets whatever is at the path, unless it is in a known
    format of others, and an address of any scheme; what a backend describes as a model of its own
    (`core.ModelFinding`) loads by default.

    Keywords win over ``config``. Without ``backend`` the best one of this machine is taken
    (`default_backend`). Raises `ModelError`, `OptionError`, `BackendError`, and TypeError for what
    is no path.
    """
    options.update(hidden(options))  # before any error: tools show the locals of a traceback
    resolved = resolve_load(config, options)
    given: object = path
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"load_model() takes a path to a model, not a {type(given).__name__}.")
    place = located(path)
    location, resolved = place.path, place.adapted(resolved)
    log.unapplied(place)
    start = time.monotonic()

    if resolved.backend:
        backend = REGISTRY.suited(resolved.backend, location)
        model = backend.load_model(location, resolved)
    else:
        # The model keeps what the others said: its refusals name them.
        choice = REGISTRY.choose(location)
        backend = choice.backend
        try:
            model = backend.load_model(location, resolved)
        except (InvalidModelError, TokenizerError, UnsupportedModelError) as error:
            raise with_refusals(error, choice) from error
        if choice.refusals and isinstance(model, TextModelBase):
            model.refusals = choice.refusals

    model = adapted(model, backend)
    remember(model, location, resolved.adapter_path)
    log.loaded(location, backend.name, model, time.monotonic() - start)
    return model


def backends() -> tuple[BackendEntry, ...]:
    """Everything that is registered, in order of preference. Imports no plugin."""
    return REGISTRY.entries()


def backend_status(name: str) -> BackendStatus:
    """Whether a backend can run here, and what it offers. Never raises."""
    return REGISTRY.status(name)


def get_backend(name: str) -> Backend:
    """The backend of this name, available or not. Raises `BackendError`."""
    return REGISTRY.get(name)


def default_backend(path: str | os.PathLike[str]) -> Backend:
    """The best backend of this machine for a model.

    Walks metal, mlx_cuda, rocm, llama_cpp, mlx_cpu, mlx_lm, then any other, and takes the first
    that is available, reads the model's format and does not refuse the model. Raises
    `ModelError`, or `BackendUnavailableError` with each one's reason.
    """
    return REGISTRY.default(located(path).path)


def register(backend: Backend) -> None:
    """Add a backend to this process; it replaces any other of its name."""
    REGISTRY.register(backend)


def discover(
    base_dir: str | os.PathLike[str] | None = None, depth: int = 1
) -> list[DiscoveredModel]:
    """Models on disk, read from their headers; nothing is copied or written.

    Those in formats that `core` does not know are described by the backends that read them.

    ``depth`` counts the levels of directories below ``base_dir``; a directory that is a store of
    Hugging Face, LM Studio or Ollama is searched as deep as that goes. Without ``base_dir``, the
    places are searched where people keep models (`core.models.stores`). What is broken, or not
    all there, is listed with its ``problem``. Raises `ModelNotFoundError` or `ModelAccessError`
    when ``base_dir`` cannot be listed.
    """
    depth = validate.integer("depth", depth, 0)
    return discover_stores() if base_dir is None else discover_in(base_dir, depth)
