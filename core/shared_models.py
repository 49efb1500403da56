"""Models given by name: each is loaded once, on first use, and shared within a process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from threading import RLock
from typing import Any

from core.api import load_model
from core.protocols import TextModel
from core.secret import Secret, hidden, secrets_of

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
