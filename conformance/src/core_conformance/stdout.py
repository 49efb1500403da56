"""Keeping stdout for the results: what a backend prints meanwhile goes to stderr."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial


@contextlib.contextmanager
def kept_clean() -> Iterator[Callable[[str], None]]:
    """Send file descriptor 1 to stderr for a while; C libraries and subprocesses included.

    The function it gives writes to stdout itself, at once: it is there if the process dies.
    """
    _flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        yield partial(_write, saved)
    finally:
        _flush()  # also what C's stdio holds back, which would come out at exit otherwise
        os.dup2(saved, 1)
        os.close(saved)


def _write(saved: int, text: str) -> None:
    try:
        redirected = sys.stdout.fileno() == 1
    except (OSError, ValueError):  # somebody has put another object there
        redirected = False
    if not redirected:
        sys.stdout.write(text)
        return
    encoding, errors = sys.stdout.encoding, "backslashreplace"
    with open(saved, "w", encoding=encoding, errors=errors, closefd=False) as stdout:
        stdout.write(text)


def _flush() -> None:
    sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
