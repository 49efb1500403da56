"""Leftovers of a backend in this process: threads for which Python would wait.

A run ends in time although such threads are left.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time

GRACE = 2.0  # seconds for threads that end by themselves once they are asked to


class Leftovers:
    """The threads that come up from now on, and for which Python waits at exit."""

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def threads(self, grace: float = GRACE) -> list[threading.Thread]:
        """Return the new threads that have not ended after ``grace`` seconds."""
        end = time.monotonic() + grace
        for thread in self._new():
            thread.join(max(0.0, end - time.monotonic()))
        return self._new()

    def _new(self) -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t not in self._before and not t.daemon]


def end_with(code: int) -> None:
    """End this process with ``code`` soon after its main thread has, whatever still runs."""

    def watch() -> None:
        threading.main_thread().join()
        time.sleep(GRACE)
        _end(code)

    threading.Thread(target=watch, name="conformance-end", daemon=True).start()
    # Called when no thread is waited for any more: finalising the interpreter while a thread hangs
    # in C code may crash it.
    atexit.register(_end, code)


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
