"""Models that estimators name by their paths: loaded once, shared by all clones of a process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from threading import RLock
from typing import Any

import core

MOST = 2
"""Models that stay loaded; of more, the one that was used least recently is closed."""

_LOCK = RLock()
_LOADED: OrderedDict[tuple[str, str, str], Any] = OrderedDict()


def is_path(model: object) -> bool:
    """Whether an estimator's model is named, by a path or as `core.load_model` takes it."""
    return isinstance(model, str | os.PathLike)


def loaded(model: Any, backend: str = "", options: Mapping[str, Any] | None = None) -> Any:
    """The model itself, or the one of this name, loaded on first use with these options.

    Raises what `core.load_model` raises.
    """
    if not is_path(model):
        return model
    key = os.fspath(model), backend, repr(sorted((options or {}).items()))
    with _LOCK:
        if key in _LOADED:
            _LOADED.move_to_end(key)
            return _LOADED[key]
        _LOADED[key] = core.load_model(model, backend=backend, **(options or {}))
        while len(_LOADED) > MOST:
            _, oldest = _LOADED.popitem(last=False)
            oldest.close()
        return _LOADED[key]


def close_models() -> None:
    """Close all models that estimators have loaded; the next use loads them again."""
    with _LOCK:
        while _LOADED:
            _, model = _LOADED.popitem()
            model.close()
