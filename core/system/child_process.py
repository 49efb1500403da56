"""Child processes that no interrupt loses: started on another thread, ended when they are dropped.

Python raises Ctrl-C wherever its main thread is. Within `subprocess.Popen` that may be just after
the fork, before the new process's number is stored: then the process can never be waited for.
Signal handlers run on no other thread.
"""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import FileIO
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")

_Made = SimpleQueue[tuple[BaseException | None, list[T]]]
_END_SECONDS = 5.0  # a killed process may have much memory to give back
_FIRST_PAUSE_SECONDS = 0.0005
_LONGEST_PAUSE_SECONDS = 0.02


class Closing(Protocol):
    """A descriptor that its owner can close, more than once."""

    def close(self) -> object:
        """Close the descriptor."""


def started(make: Callable[[], T]) -> T:
    """Run ``make`` on a separate thread, or on this one if no thread can start; return its result.

    If the caller is interrupted, the result is dropped, which must end it: hold the process by a
    `Child`. Raises like ``make``.
    """
    # Neither a pool nor a threading.Thread: a signal handler may start a process where it
    # interrupts this, and would wait for ever for the locks that those hold.
    box: _Made[T] = SimpleQueue()
    error: BaseException | None = None

    try:
        try:
            _thread.start_new_thread(_make, (make, box))
        except RuntimeError:
            _make(make, box)

        error, results = box.get()
        if error is not None:
            raise error
        return results[0]  # not pop(): an interrupt may come after a call
    finally:
        del box, error  # an error's traceback keeps this frame


def _make(make: Callable[[], T], box: _Made[T]) -> None:
    try:
        box.put((None, [make()]))
    except BaseException as error:  # noqa: BLE001 - carried to who waits
        box.put((error, []))


def pipe() -> tuple[FileIO, FileIO]:
    """Return a pipe's end to read from and its end to write to. See `above_standard`."""
    reading, writing = os.pipe()
    return FileIO(above_standard(reading)), FileIO(above_standard(writing), "w")


def above_standard(descriptor: int) -> int:
    """Move a descriptor above 2, and return its number; children do not inherit it.

    A program that has closed a standard stream is given its number for something else, and where
    a child gets that, its own stdin, stdout or stderr takes the place.
    """
    if descriptor > 2:
        return descriptor
    import fcntl  # not on Windows, where this module can be imported all the same

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


class Child:
    """A started process, and this side's descriptors of it.

    It is ended when this object is dropped, and when the program ends. A fork that drops it leaves
    the process alone, which is its parent's.
    """

    def __init__(self, popen: subprocess.Popen[bytes], *ours: Closing) -> None:
        self.popen, self.pid = popen, popen.pid
        self._end = popen, ours, os.getpid()
        self._dropped = weakref.finalize(self, _end, *self._end)

    @property
    def status(self) -> int | None:
        """The exit status, as `subprocess.Popen.returncode` has it; None while the process runs."""
        return _status(self.popen)

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, waiting for it at most this long; None if it takes longer."""
        return _waited(self.popen, seconds)

    def kill(self) -> None:
        """End the process at once and wait until it is gone. Its descriptors stay open."""
        _kill(self.popen)

    def end(self) -> None:
        """End the process and close its descriptors."""
        _end(*self._end)
        self._dropped.detach()  # last: if ending was interrupted, it is repeated


def _end(popen: subprocess.Popen[bytes], ours: Iterable[Closing], owner: int) -> None:
    try:
        _end_once(popen, ours, owner)
    except BaseException:  # an interrupt
        _end_once(popen, ours, owner)
        raise


def _end_once(popen: subprocess.Popen[bytes], ours: Iterable[Closing], owner: int) -> None:
    for descriptor in ours:
        descriptor.close()
    if os.getpid() == owner:
        _kill(popen)
    else:
        popen.returncode = 0  # neither to be waited for nor to be warned of


def _kill(popen: subprocess.Popen[bytes]) -> None:
    if _status(popen) is None:
        with suppress(OSError):
            os.kill(popen.pid, signal.SIGKILL)
        _waited(popen, _END_SECONDS)


def _status(popen: subprocess.Popen[bytes]) -> int | None:
    """Return the exit status without `Popen`'s lock, which an interrupt may leave held."""
    if popen.returncode is None:
        try:
            pid, status = os.waitpid(popen.pid, os.WNOHANG)
        except ChildProcessError:  # others have waited for it, or an interrupt took its status
            popen.returncode = 0
        else:
            popen.returncode = os.waitstatus_to_exitcode(status) if pid else None
    return popen.returncode


def _waited(popen: subprocess.Popen[bytes], seconds: float) -> int | None:
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE_SECONDS
    while _status(popen) is None and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return popen.returncode
