"""Models that a program names: each is loaded once, on first use, and shared within a process."""

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
"""Models that are kept; of more, the one that was used least recently is let go."""

_LOCK = RLock()
_LOADED: OrderedDict[tuple[str, str, str, tuple[Secret, ...]], TextModel] = OrderedDict()


def is_named(model: object) -> bool:
    """Whether a model is given by its path or its name, and not as an object."""
    return isinstance(model, str | os.PathLike)


def shared_model(
    model: TextModel | str | os.PathLike[str],
    backend: str = "",
    options: Mapping[str, Any] | None = None,
) -> TextModel:
    """A loaded model as it is, or the one of this name, with these keywords of `core.load_model`.

    A model that is let go frees its memory when nobody uses it any more, and not before. Raises
    what `core.load_model` raises.
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
    """Close all of them, used or not; the next use of a name loads it again."""
    with _LOCK:
        while _LOADED:
            _, model = _LOADED.popitem()
            model.close()
