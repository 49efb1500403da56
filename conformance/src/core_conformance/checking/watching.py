"""Seeing what a backend does besides answering: threads that stay, text on stdout."""

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
from collections.abc import Collection, Iterator

_GRACE_SECONDS = 2.0  # a thread that was told to end may still be about to


def left_behind(before: Collection[threading.Thread]) -> list[str]:
    """Names of the threads that were not there before, and do not end."""
    gc.collect()
    deadline = time.monotonic() + _GRACE_SECONDS
    while True:
        new = [thread.name for thread in threading.enumerate() if thread not in before]
        if not new or time.monotonic() > deadline:
            return new
        time.sleep(0.01)


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what Python, and anything below it, writes to stdout in the block.

    The list that it gives is filled when the block ends.
    """
    found: list[str] = []
    _flush()
    saved = os.dup(1)

    # Python's own stdout is replaced, and so is descriptor 1, to which native libraries write.
    with tempfile.TemporaryFile() as file, contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            os.dup2(file.fileno(), 1)
            yield found
        finally:
            _flush()
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            printed = (text.getvalue(), file.read().decode(errors="replace"))
            found += [part for part in printed if part]


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)  # C's own buffer: a printf of a native library
