"""Errors on their way from the engine's thread to the callers that they concern."""

from __future__ import annotations

import copy
import traceback


def own_error(error: BaseException) -> Exception:
    """A copy of an error for one request.

    Each is raised in another thread, and none may hold the frames of the step that failed, which
    hold its arrays for as long as somebody keeps the error. The traceback is added as a note.
    """
    try:
        own: BaseException = copy.copy(error)
    except Exception:  # noqa: BLE001 - its class takes other arguments than it keeps
        own = error
    if own is error or not isinstance(own, Exception):
        own = RuntimeError(f"{type(error).__name__}: {error}")
    if error.__traceback__ is not None:
        own.add_note("".join(traceback.format_exception(error)))
    return own


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: weights and caches, as long as it is kept."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
