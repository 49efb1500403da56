"""Stored errors without the frames that raised them.

The traceback of an error references those frames, with their locals and their callers: streams,
models, texts. Storing the error would keep all of them alive.
"""

from __future__ import annotations

import copy

from core.errors import CoreError


def without_frames(error: Exception) -> Exception:
    """Return a copy, for storage, of an error that is being raised."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it stores
        return CoreError(f"{type(error).__name__}: {error}")


def drop_frames(error: BaseException) -> None:
    """Remove the tracebacks of an error that is not being raised, and of its causes.

    The context is removed as well: it may be a caller's error that is still being raised.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = link.__context__ = None
        link = link.__cause__
