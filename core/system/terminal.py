"""Output to a terminal: standard output as a private stream, and text that is safe to display.

After `take`, descriptor 1 and ``sys.stdout`` lead to stderr: text that a plugin, a library, native
code or a child process prints cannot get between the program's results, which go to `stream`.
``infer-cli`` calls it before it loads any plugin.

Names of files and tensors, templates, tokens and the messages made of them come from models, and
may hold control sequences, or characters that reorder or hide the text around them: `visible` turns
such characters into escapes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import unicodedata
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


def terminal_size(file: TextIO | None = None) -> os.terminal_size:
    """Return columns and lines, like `shutil.get_terminal_size`, which uses descriptor 1.

    COLUMNS and LINES come first, then the terminal that ``file`` writes to (by default `stream`),
    then 80 and 24.
    """
    size = os.terminal_size((0, 0))
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size((file or stream()).fileno())
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


# Controls, format characters (those that set a direction of writing are the dangerous ones),
# surrogates (of file names that are not UTF-8), line and paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Joiners: emoji, and scripts such as Persian and Hindi, are made of them.
_JOINERS = "\u200c\u200d"


def visible(text: str) -> str:
    """Return the text with every character that may control a terminal as an escape."""
    return _escaped(text, "")


def visible_lines(text: str) -> str:
    """Return a text of several lines, made safe like `visible` except newlines and tabs."""
    return _escaped(text, "\n\t")


def visible_json(data: bytes) -> bytes:
    """Return a JSON document in UTF-8 with such characters in strings as JSON escapes."""
    text = data.decode()
    if text.rstrip("\n").isprintable():
        return data
    # Outside of strings there are none but white space.
    return re.sub(r"[^\x00-\x7e]", lambda match: _in_json(match[0]), text).encode()


def _escaped(text: str, allowed: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if character not in allowed and _is_hidden(character)
        else character
        for character in text
    )


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def _in_json(character: str) -> str:
    if character == "\x7f":  # which JSON allows, and `json` leaves
        return "\\u007f"
    return json.dumps(character)[1:-1] if _is_hidden(character) else character
