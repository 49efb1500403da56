"""The functions that users call: load a model, share a named one, list backends, find models."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from threading import RLock
from typing import Any, Unpack

from core import log, validate
from core.choosing import with_refusals
from core.errors import InvalidModelError, TokenizerError, UnsupportedModelError
from core.kit.base import TextModelBase
from core.kit.support import load_needs
from core.models.fingerprint import remember
from core.models.locating import located, log_unapplied
from core.models.stores import discover_in, discover_stores
from core.options import LoadConfig, LoadOptions, options_named, resolve_load
from core.protocols import Backend, TextModel
from core.registry import REGISTRY, BackendEntry
from core.secret import Secret, hidden, secrets_of
from core.types import BackendStatus, DiscoveredModel


@options_named
def load_model(
    path: str | os.PathLike[str],
    config: LoadConfig | None = None,
    /,
    **options: Unpack[LoadOptions],
) -> TextModel:
    """Load the model at ``path``: a directory with config.json and safetensors, or a GGUF file.

    It may also be a name that `discover` lists, ``org/name``, Ollama's ``name:tag`` (with its
    adapter; the layers that are not applied are logged), or the address of a server,
    ``http://host:port#model`` (docs/remote.md). A named backend receives any path that is not in a
    known format of other backends, and addresses of any scheme; a model that a backend recognises
    (`core.ModelFinding`) also loads by default.

    Keywords take precedence over ``config``. Without ``backend`` the best one on this machine is
    selected (`default_backend`). Raises `ModelError`, `OptionError`, `BackendError`, and TypeError
    if ``path`` is not a path.
    """
    options.update(hidden(options))  # before any error: tools show the locals of a traceback
    resolved = resolve_load(config, options)
    given: object = path
    if not isinstance(given, str | bytes | os.PathLike):
        raise TypeError(f"load_model() takes a path to a model, not a {type(given).__name__}.")
    place = located(path)
    location, resolved = place.path, place.adapted(resolved)
    log_unapplied(place)
    start = time.monotonic()

    if resolved.backend:
        backend = REGISTRY.suited(resolved.backend, location)
        model = backend.load_model(location, resolved)
    else:
        choice = REGISTRY.choose(location, *load_needs(resolved).values())
        backend = choice.backend
        try:
            model = backend.load_model(location, resolved)
        except (InvalidModelError, TokenizerError, UnsupportedModelError) as error:
            raise with_refusals(error, choice) from error
    if isinstance(model, TextModelBase):
        model.location = location
    remember(model, location, resolved.adapter_path)
    log.loaded(location, backend.name, model, time.monotonic() - start)
    return model


def backends() -> tuple[BackendEntry, ...]:
    """Return all registered backends, in order of preference. Imports no plugin."""
    return REGISTRY.entries()


def backend_status(name: str) -> BackendStatus:
    """Return a backend's status: whether it can run here, and its capabilities. Never raises."""
    return REGISTRY.status(name)


def get_backend(name: str) -> Backend:
    """Return the backend of this name, available or not. Raises `BackendError`."""
    return REGISTRY.get(name)


def default_backend(path: str | os.PathLike[str]) -> Backend:
    """Return the best backend on this machine for a model.

    It is the first of metal, mlx_cuda, rocm, openvino, llama_cpp, mlx_cpu, mlx_lm, then any other,
    that is available, reads the model's format and supports the model. (`load_model` also takes
    its options into account: an adapter, for example.) Raises `ModelError`, or
    `BackendUnavailableError` with the reason of each backend.
    """
    place = located(path)
    return REGISTRY.choose(place.path, *load_needs(place.adapted(LoadConfig())).values()).backend


def register(backend: Backend) -> None:
    """Add a backend to this process; it replaces any other with the same name."""
    REGISTRY.register(backend)


def discover(
    base_dir: str | os.PathLike[str] | None = None, depth: int = 1
) -> list[DiscoveredModel]:
    """List the models on disk, described from their headers; nothing is copied or written.

    Models in formats that `core` does not know are described by the backends that read them.

    ``depth`` counts the levels of directories below ``base_dir``; a store of Hugging Face, LM
    Studio or Ollama is searched completely. Without ``base_dir``, the usual places for models are
    searched (`core.models.stores`). A broken or incomplete model is listed with its ``problem``.
    Raises `ModelNotFoundError` or `ModelAccessError` if ``base_dir`` cannot be listed.
    """
    depth = validate.integer("depth", depth, 0)
    return discover_stores() if base_dir is None else discover_in(base_dir, depth)


MOST = 2
"""Maximum number of cached models; the least recently used one is dropped first."""

_LOCK = RLock()
_LOADED: OrderedDict[tuple[str, str, str, tuple[Secret, ...]], TextModel] = OrderedDict()


def is_named(model: object) -> bool:
    """Return whether a model is given by its path or its name, not as an object."""
    return isinstance(model, str | os.PathLike)


def shared_model(
    model: TextModel | str | os.PathLike[str],
    backend: str = "",
    options: Mapping[str, Any] | None = None,
) -> TextModel:
    """Return a loaded model unchanged, or load a named one with these `core.load_model` keywords.

    A dropped model frees its memory once it is no longer in use. Raises like `core.load_model`.
    """
    if not isinstance(model, str | os.PathLike):
        return model
    known = hidden(options or {})
    key = os.fspath(model), backend, repr(sorted(known.items())), secrets_of(known)
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = load_model(model, backend=backend, **known)
        _LOADED.move_to_end(key)
        while len(_LOADED) > MOST:
            _LOADED.popitem(last=False)
        return _LOADED[key]


def close_shared_models() -> None:
    """Close all cached models, in use or not; the next use of a name loads it again."""
    with _LOCK:
        while _LOADED:
            _, model = _LOADED.popitem()
            model.close()
