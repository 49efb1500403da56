"""Keeping stdout for the results: what a backend prints meanwhile goes to stderr."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def kept_clean() -> Iterator[None]:
    """Send file descriptor 1 to stderr for a while; C libraries and subprocesses included."""
    _flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        _flush()  # also what C's stdio holds back, which would come out at exit otherwise
        os.dup2(saved, 1)
        os.close(saved)


def _flush() -> None:
    sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
