"""Models in formats that `core` does not know, described by the backends that read them.

`core.registry` registers these backends when it is imported. Without it, discovery only finds the
formats that `core` recognises itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeAlias

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
    return known if known is not None else [each for source in _sources for each in source()]


def described_at(path: str, source: str) -> DiscoveredModel | None:
    """Return the model at a path, described by the first backend that recognises it."""
    models = (_placed(model, source) for each in _describers() if (model := each(path)))
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
