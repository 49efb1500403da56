"""The standard streams of the process: closed, full, or with another encoding."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from typing import Any, TextIO

import click._compat

from core.system import stdout
from core_cli import exits, output


def prepare() -> None:
    """Prepare the streams; stdout is reserved for this program (`core.system.terminal`).

    Exits with 1 when stdout is closed.
    """
    # A descriptor that is closed would be given to the next file that is opened.
    for number in (0, 1, 2):
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest number

    # Python has None for a stream that was closed when it started.
    nowhere = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)

    stdout.take()
    vars(click._compat)["sys"] = _SysOfClick()

    for stream in (stdout.stream(), sys.stderr):
        # A character that the terminal's encoding lacks is shown as an escape, never an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning

    if nowhere:
        output.say("Error: stdout is closed. To run without output, redirect it to /dev/null.")
        sys.exit(exits.RUNTIME)


def settle() -> None:
    """Drop unwritable output: Python would retry at exit, and exit with 120."""
    for stream in {stdout.stream(), sys.stdout, sys.stderr}:
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _SysOfClick:
    """The module ``sys`` as click sees it, which looks up stdout there at each call.

    Its ``echo``, ``--help``, completions and ``File("-")`` write to the private stream.
    """

    @property
    def stdout(self) -> TextIO:
        return stdout.stream()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    output.warn(str(message))
