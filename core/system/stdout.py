"""Standard output as the private stream of a program.

After `take`, descriptor 1 and ``sys.stdout`` lead to stderr: text that a plugin, a library, native
code or a child process prints cannot get between the program's results, which go to `stream`.
``infer-cli`` calls it before it loads any plugin.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

_private: TextIO | None = None


def stream() -> TextIO:
    """Return the stream for results: the private one after `take`, else ``sys.stdout``."""
    return _private or sys.stdout


def write(data: bytes) -> None:
    """Write all of the data to `stream`, after its buffered text."""
    target = stream()
    target.flush()
    rest = memoryview(data)
    while rest:  # under PYTHONUNBUFFERED a signal may leave a part unwritten
        rest = rest[target.buffer.write(rest) :]
    target.buffer.flush()


def take() -> None:
    """Reserve stdout for `stream`, and redirect all other output to stderr.

    A ``sys.stdout`` that the caller has replaced, so that it is not descriptor 1, is kept.
    """
    global _private
    public = sys.stdout
    if not _is_descriptor_1(public):
        return

    # A copy, which child processes do not inherit.
    _private = open(  # noqa: SIM115 - for as long as the process lives
        os.dup(1), "w", encoding=public.encoding, errors=public.errors, newline="\n"
    )
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with contextlib.suppress(OSError, ValueError):
        public.flush()  # what was printed while Python started goes to stderr, too


def terminal_size() -> os.terminal_size:
    """Return columns and lines, like `shutil.get_terminal_size`, which uses descriptor 1.

    COLUMNS and LINES come first, then the terminal that `stream` writes to, then 80 and 24.
    """
    size = os.terminal_size((0, 0))
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size(stream().fileno())
    return os.terminal_size(
        (_dimension("COLUMNS", size.columns, 80), _dimension("LINES", size.lines, 24))
    )


def _dimension(variable: str, actual: int, default: int) -> int:
    with contextlib.suppress(KeyError, ValueError):
        if (requested := int(os.environ[variable])) > 0:
            return requested
    return actual or default


def _is_descriptor_1(candidate: TextIO) -> bool:
    try:
        return candidate.fileno() == 1
    except (OSError, ValueError):
        return False
