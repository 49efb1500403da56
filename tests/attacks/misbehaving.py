"""Cases that do each thing which must not happen: what the harness has to catch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import core

from .verdict import check, check_rows

PEAK, GROWTH = 32 << 20, 16 << 20  # bytes
KEPT: list[object] = []


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """One case for each of `CASES`, by its position."""
    return lambda number: list(CASES.values())[number]() or "answered"


def _well() -> str:
    return check(core.InvalidModelError("a model is broken"))


def _dying() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exiting() -> None:
    os._exit(7)


def _hanging() -> None:
    threading.Event().wait()


def _foreign() -> str:
    try:
        return str(len(None))  # type: ignore[arg-type]
    except TypeError as error:
        return check(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))


def _raising() -> None:
    raise KeyError("foreign")


def _row() -> None:
    check_rows([core.BatchResult(error=KeyError("foreign"))])


def _mute() -> str:
    return check(core.ChatTemplateError("failed on these messages: "))


def _ignored() -> None:
    class Noisy:
        def __del__(self) -> None:
            raise KeyError("foreign")

    Noisy()


def _thread() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    KEPT.append(thread)


def _descriptor() -> None:
    os.open("/dev/null", os.O_RDONLY)


def _zombie() -> None:
    if not (child := os.fork()):
        os._exit(0)
    KEPT.append(child)


def _greedy() -> None:
    bytes(b"x" * (40 << 20))


def _hoarding() -> None:
    KEPT.append(b"x" * (20 << 20))


CASES: dict[str, Callable[[], str | None]] = {
    "well": _well,
    "death": _dying,
    "death by exit": _exiting,
    "foreign": _foreign,
    "foreign, raised": _raising,
    "foreign, of a row": _row,
    "foreign, without a message": _mute,
    "foreign, ignored": _ignored,
    "leak of a thread": _thread,
    "leak of a descriptor": _descriptor,
    "leak of a process": _zombie,
    "memory": _greedy,
    "well again": _well,
    "hang": _hanging,
    "leak of memory": _hoarding,
}
