"""Loading a model on its own thread, for a process that may do it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from core.errors import CoreError, OutOfMemoryError, UnsupportedModelError
from core.system.limited_files import hold
from core_openvino.library import lacks_memory, reason_of
from core_runtime.owner import FirstProcess, OwnerThread
from core_runtime.request import forget_frames

L = TypeVar("L")
M = TypeVar("M")

_first_process = FirstProcess("OpenVINO")  # a fork has none of its threads: a pass would hang


def open_model(
    backend: str,
    path: str | os.PathLike[str],
    load: Callable[[], L],
    model: Callable[[str, L, OwnerThread], M],
) -> M:
    """Run ``load`` on a thread of its own, and return the ``model`` of its result.

    Raises `core.ModelError`, `core.OptionError`, `core.OutOfMemoryError`.
    """
    _first_process.check(backend)
    _first_process.mark()
    owners: list[OwnerThread] = []
    try:
        hold(owners, partial(OwnerThread, backend))
        loaded = owners[0].run(lambda: _loaded(path, load))
        return model(backend, loaded, owners[0])
    except BaseException as error:
        forget_frames(error)  # else a reference to the error keeps the weights alive
        for owner in owners:
            owner.stop()
        raise


def _loaded(path: str | os.PathLike[str], load: Callable[[], L]) -> L:
    try:
        return load()
    except CoreError:
        raise
    except (MemoryError, RuntimeError) as error:
        raise _failure(path, error) from error


def _failure(path: str | os.PathLike[str], error: Exception) -> CoreError:
    """Return the error of a load that ran out of memory, or that OpenVINO refused."""
    reason = reason_of(error)
    if lacks_memory(error):
        return OutOfMemoryError(
            f"{os.fspath(path)} does not fit in memory ({reason}). Reduce context_len or "
            "parallel_slots, free some memory, or raise the limit of the process (`ulimit -v`)."
        )
    return UnsupportedModelError(
        f"OpenVINO cannot run {os.fspath(path)}: {reason}. Load it with another backend."
    )
