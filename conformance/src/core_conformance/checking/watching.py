"""Side effects of a backend: resources that are not freed, text on stdout."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields

_GRACE_SECONDS = 2.0  # a thread that was told to end may still be about to


def left_behind(before: Collection[threading.Thread]) -> list[str]:
    """Return the names of the threads that are new and do not end."""
    gc.collect()
    deadline = time.monotonic() + _GRACE_SECONDS
    while True:
        new = [thread.name for thread in threading.enumerate() if thread not in before]
        if not new or time.monotonic() > deadline:
            return new
        time.sleep(0.01)


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """Exclude all objects that exist from the collections of the block, which are quick then."""
    if gc.get_freeze_count():  # an outer block does so already
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what Python, and anything below it, writes to stdout in the block.

    The list that it gives is filled when the block ends.
    """
    lines: list[str] = []
    _flush()
    saved = os.dup(1)

    # Python's own stdout is replaced, and so is descriptor 1, to which native libraries write.
    with tempfile.TemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            os.dup2(file.fileno(), 1)
            yield lines
        finally:
            _flush()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            printed = (text.getvalue(), file.read().decode(errors="replace"))
            lines += [part for part in printed if part]


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)  # C's own buffer: a printf of a native library


@dataclass(frozen=True, slots=True)
class Holdings:
    """The resources of this process at one moment; 0 if the system does not report them."""

    threads: int
    descriptors: int
    resident_bytes: int
    active_bytes: int

    def times(self, count: int) -> Holdings:
        """Return these numbers multiplied by ``count``."""
        return Holdings(*(count * getattr(self, field.name) for field in fields(self)))

    def beyond(self, before: Holdings, least: Holdings) -> list[str]:
        """Return the names of what has grown since ``before``, by ``least`` or more."""
        grown = (
            (field.name, getattr(self, field.name) - getattr(before, field.name))
            for field in fields(self)
        )
        return [name for name, more in grown if more >= getattr(least, name)]


def holdings(active_bytes: Callable[[], int] = lambda: 0) -> Holdings:
    """Count them. ``active_bytes`` is what the backend itself reports."""
    gc.collect()
    with contextlib.suppress(OSError):
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        tasks, descriptors = (len(os.listdir(f"/proc/self/{name}")) for name in ("task", "fd"))
        return Holdings(tasks, descriptors, resident, active_bytes())
    return Holdings(threading.active_count(), 0, 0, active_bytes())


def growing(
    rounds: int, once: Callable[[], object], least: Holdings, active_bytes: Callable[[], int]
) -> list[str]:
    """Return the resources that grow by ``least`` or more in each round after a first one.

    A single growth may be a cache that fills, or another's doing. Threads that were told to end
    have a moment for it.
    """
    once()
    start = before = holdings(active_bytes)
    grown = {field.name for field in fields(Holdings)}
    for _ in range(rounds):
        once()
        now = holdings(active_bytes)
        grown &= set(now.beyond(before, least))
        before = now
        if not grown:
            return []

    deadline = time.monotonic() + _GRACE_SECONDS
    while grown and time.monotonic() < deadline:
        time.sleep(0.05)
        grown &= set(holdings(active_bytes).beyond(start, least.times(rounds)))
    return sorted(grown)
