"""The stream that a program keeps for its results."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest

from core.system import terminal

FACTS = """
import json, os, sys
from core.system import terminal

terminal.take()
own = terminal.stream()
facts = {
    "encoding": own.encoding,
    "terminal": own.isatty(),
    "size": [*terminal.terminal_size()],
    "inherited": os.get_inheritable(own.fileno()),
    "foreign": sys.stdout is sys.stderr and os.path.sameopenfile(1, 2),
}
own.write(json.dumps(facts) + "\\n")
own.flush()
"""


def facts(**streams: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", FACTS], check=True, timeout=60, **streams)


def test_the_stream_is_what_stdout_was() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "LINES": "7", "COLUMNS": "²"}
    done = facts(capture_output=True, env=environment)
    assert done.stdout == (
        b'{"encoding": "iso8859-1", "terminal": false, "size": [80, 7], "inherited": false, '
        b'"foreign": true}\n'
    )
    assert done.stderr == b""


def test_the_terminal_is_that_of_stdout() -> None:
    termios = pytest.importorskip("termios", reason="there are no terminals on this system")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (33, 123))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    facts(stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=environment)
    shown = os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert b'"terminal": true, "size": [123, 33]' in shown


def test_a_stream_of_the_callers_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a test runner, which reads what the program writes."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    before = os.fstat(1)
    terminal.take()
    assert (sys.stdout, terminal.stream()) == (text, text)
    assert os.path.samestat(os.fstat(1), before)
