"""The functions that users call: load a model, list backends, find models."""

from __future__ import annotations

import os
from typing import Unpack

from core import discovery, validate
from core.choosing import unavailability
from core.errors import BackendUnavailableError, UnsupportedModelError
from core.known_plugins import how_to_read
from core.model_files import model_formats, resolve_path
from core.model_stores import discover_stores
from core.options import LoadConfig, LoadOptions, resolve_load
from core.protocols import Backend, TextModel
from core.registry import REGISTRY, BackendEntry
from core.types import BackendStatus, DiscoveredModel


def load_model(
    path: str | os.PathLike[str],
    config: LoadConfig | None = None,
    /,
    **options: Unpack[LoadOptions],
) -> TextModel:
    """Load the model at ``path``: a directory with config.json and safetensors, or a GGUF file.

    Keywords win over ``config``. Without ``backend`` the best one of this machine is taken
    (`default_backend`). Raises `ModelError`, `OptionError`, `BackendError`.
    """
    resolved = resolve_load(config, options)
    location = resolve_path(path)
    formats = model_formats(location)
    if not resolved.backend:
        return REGISTRY.default(location).load_model(location, resolved)
    backend = REGISTRY.get(resolved.backend)
    if reason := unavailability(backend):
        raise BackendUnavailableError(resolved.backend, reason)
    if not set(formats) & set(backend.formats):
        raise UnsupportedModelError(_wrong_format(resolved.backend, location, formats))
    return backend.load_model(location, resolved)


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
    return REGISTRY.default(path)


def register(backend: Backend) -> None:
    """Add a backend to this process; it replaces any other of its name."""
    REGISTRY.register(backend)


def discover(
    base_dir: str | os.PathLike[str] | None = None, depth: int = 1
) -> list[DiscoveredModel]:
    """Models on disk, read from their headers; nothing is copied or written.

    ``depth`` counts the levels of directories below ``base_dir``. Without ``base_dir``, the
    places are searched where people keep models (`core.model_stores`), each in its own depth.
    Raises `ModelNotFoundError` or `ModelAccessError` when ``base_dir`` cannot be listed.
    """
    depth = validate.integer("depth", depth, 0)
    return discover_stores() if base_dir is None else discovery.discover(base_dir, depth)


def _wrong_format(name: str, location: str, formats: tuple[str, ...]) -> str:
    others = REGISTRY.reading(formats)
    wanted = " or ".join(formats)
    known = f"use backend {others[0]!r}" if others else how_to_read(formats)
    reads = ", ".join(sorted(REGISTRY.get(name).formats))
    return f"Backend {name!r} reads {reads}; {location!r} is {wanted}. For that, {known}."
