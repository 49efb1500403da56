"""Models in formats that `core` does not know, described by the backends that read them.

`core.registry` registers these backends when it is imported. Without it, discovery only finds the
formats that `core` recognises itself. A backend's description is checked here, and its faults are
logged, because ``describe_model`` must not raise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TypeAlias, cast

from core import log
from core.errors import ANYTHING, described
from core.extensions import ModelFinding
from core.protocols import Backend
from core.types import DiscoveredModel

Describer: TypeAlias = Callable[[str], DiscoveredModel | None]
"""Function that returns one backend's description of a path, or None. Does not raise."""

_sources: list[Callable[[], Sequence[Describer]]] = []
_SEARCH: ContextVar[Sequence[Describer] | None] = ContextVar("describers", default=None)


def describe_with(source: Callable[[], Sequence[Describer]]) -> None:
    """Set the source of the describers; it is called for each search."""
    _sources[:] = [source]


@contextmanager
def one_search() -> Iterator[None]:
    """Fetch the describers once for all directories of a block; also a decorator."""
    token = _SEARCH.set(_describers())
    try:
        yield
    finally:
        _SEARCH.reset(token)


def _describers() -> Sequence[Describer]:
    known = _SEARCH.get()
    if known is not None:
        return known
    return [describe for source in _sources for describe in source()]


def described_at(path: str, source: str) -> DiscoveredModel | None:
    """Return the model at a path, described by the first backend that recognises it."""
    models = (_placed(model, source) for describe in _describers() if (model := describe(path)))
    return next(iter(joined([], models)), None)


def described_in(directory: str, files: Sequence[str], source: str) -> Iterator[DiscoveredModel]:
    """Yield each backend's description of a directory, or else of each of these files in it."""
    for describe in _describers():
        if model := describe(directory):
            yield _placed(model, source)
            continue
        yield from (_placed(model, source) for file in files if (model := describe(file)))


def joined(
    known: Iterable[DiscoveredModel], described: Iterable[DiscoveredModel]
) -> list[DiscoveredModel]:
    """Combine the models that `core` knows with those that backends describe; each path once.

    The first description of a path is used, unless it has a problem and a later one has none.
    """
    models = {model.path: model for model in known}
    for model in described:
        first = models.setdefault(model.path, model)
        if first.problem and not model.problem:
            models[model.path] = model
    return list(models.values())


def _placed(model: DiscoveredModel, source: str) -> DiscoveredModel:
    """Fill in the fields that the backend cannot know, or may omit."""
    modified = model.modified or _modified(model.path)
    return replace(model, source=source, names=(), modified=modified)


def _modified(path: str) -> float:
    with suppress(OSError, ValueError):  # an address, a null character
        return os.stat(path).st_mtime
    return 0.0


_USUAL = DiscoveredModel("", "", 0, 0, 0, "", 0, "")  # a value of the right type for each field


def describes(backend: Backend) -> bool:
    """Return whether a backend describes models (`core.ModelFinding`). Does not raise."""
    with suppress(*ANYTHING):  # a property of the backend may raise
        return isinstance(backend, ModelFinding)
    return False


def described_by(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    """Return a backend's description of a path, and the fault if its answer is invalid.

    Both are empty if the path is not one of its models, and for a backend that describes none.
    Does not raise.
    """
    return _asked(backend, path) if describes(backend) else (None, "")


def describer(backend: Backend) -> Describer:
    """Return `described_by` of a backend that describes models; its first fault is logged."""
    faults: list[str] = []

    def describe(path: str) -> DiscoveredModel | None:
        model, fault = _asked(backend, path)
        if fault and not faults:
            log.misbehaved(backend.name, fault)
            faults.append(fault)
        return model

    return describe


def _asked(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    finder = cast("ModelFinding", backend)
    try:
        model = finder.describe_model(path)
        fault = "" if model is None else _fault(model, path, backend)
    except ANYTHING as error:
        return None, f"describe_model({path!r}) raised {described(error)}"
    return (None, f"describe_model({path!r}) returned {fault}") if fault else (model, "")


def _fault(model: object, path: str, backend: Backend) -> str:
    """Return the fault of a description, for the backend's author; empty for a valid one."""
    if not isinstance(model, DiscoveredModel):
        return f"a {type(model).__name__}, not a core.DiscoveredModel"
    if model.path != path:
        return f"a model of another path ({model.path!r})"
    for item in fields(model):
        value, usual = getattr(model, item.name), getattr(_USUAL, item.name)
        if not isinstance(value, int | float if isinstance(usual, float) else type(usual)):
            return f"a model whose {item.name} is {value!r}"
    if model.format not in backend.formats:
        return f"a model of the format {model.format!r}, which is not one of its formats"
    return ""
