"""Errors that are kept, without the frames that raised them.

The traceback of an error holds those frames, with their locals and with whoever called them:
streams, models, texts. Whatever keeps the error would keep all of that.
"""

from __future__ import annotations

import copy

from core.errors import CoreError


def without_frames(error: Exception) -> Exception:
    """Return a copy of an error that is on its way to a caller, to keep."""
    try:
        return copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it keeps
        return CoreError(f"{type(error).__name__}: {error}")


def drop_frames(error: BaseException) -> None:
    """Take the tracebacks off an error that nobody raises now, and off its causes.

    Its context goes: that may be an error of the caller's, which is still on its way.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = link.__context__ = None
        link = link.__cause__
