"""Models in formats that `core` does not know, as the backends describe them that read these.

Which backends do is known above this room: `core.registry` brings them as it is imported. Without
it, discovery finds what `core` recognises by itself.
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
"""What a path is to one backend: a model of its own, or None. Does not raise."""

_sources: list[Callable[[], Sequence[Describer]]] = []
_SEARCH: ContextVar[Sequence[Describer] | None] = ContextVar("describers", default=None)


def describe_with(source: Callable[[], Sequence[Describer]]) -> None:
    """Take the describers from here: asked for at each search."""
    _sources[:] = [source]


@contextmanager
def one_search() -> Iterator[None]:
    """Look for the describers once for all directories of a block; also a decorator."""
    token = _SEARCH.set(_describers())
    try:
        yield
    finally:
        _SEARCH.reset(token)


def _describers() -> Sequence[Describer]:
    known = _SEARCH.get()
    return known if known is not None else [each for source in _sources for each in source()]


def described_at(path: str, source: str) -> DiscoveredModel | None:
    """Return the model that a path is to a backend: to the first that calls it its own."""
    models = (_placed(model, source) for each in _describers() if (model := each(path)))
    return next(iter(joined([], models)), None)


def described_in(directory: str, files: Sequence[str], source: str) -> Iterator[DiscoveredModel]:
    """Yield what a directory is to each backend, or else what each of these files in it is."""
    for describe in _describers():
        if model := describe(directory):
            yield _placed(model, source)
            continue
        yield from (_placed(model, source) for file in files if (model := describe(file)))


def joined(
    known: Iterable[DiscoveredModel], described: Iterable[DiscoveredModel]
) -> list[DiscoveredModel]:
    """Join the models that `core` knows with those that backends describe; each path once.

    The first description of a path stands, unless it has a problem and a later one has none.
    """
    models = {model.path: model for model in known}
    for model in described:
        first = models.setdefault(model.path, model)
        if first.problem and not model.problem:
            models[model.path] = model
    return list(models.values())


def _placed(model: DiscoveredModel, source: str) -> DiscoveredModel:
    """Fill in what the backend cannot know, or need not say."""
    modified = model.modified or _modified(model.path)
    return replace(model, source=source, names=(), modified=modified)


def _modified(path: str) -> float:
    with suppress(OSError, ValueError):  # an address, a null character
        return os.stat(path).st_mtime
    return 0.0
