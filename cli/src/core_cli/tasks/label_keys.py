"""The keys of the labelling form: a number, the start of a label, or a command."""

from __future__ import annotations

import codecs
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

import click

from core_cli import output

_ENTER, _ERASE, _END = ("\r", "\n"), ("\x7f", "\b"), ("\x04", "\x1a")


class Command(Enum):
    """An action other than choosing a label."""

    UNDO = "u"
    SKIP = "s"
    QUIT = "q"


Answer = str | Command
_COMMANDS = {command.value: command for command in Command}


class Keys:
    """Reads answers: key by key on a terminal, else line by line.

    A number of one digit counts without Enter if there are at most nine labels, and a command
    without Enter if no label begins with its letter.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels, self._key = labels, KeyReader().key
        self._read: Callable[[], str | None] = self._typed if sys.stdin.isatty() else _line

    def answer(self) -> Answer:
        """Return the next answer; the end of the input is `Command.QUIT`."""
        while True:
            text = self._read()
            if text is None:
                return Command.QUIT
            try:
                return self.meaning(text)
            except ValueError as error:
                output.say(f"{error} Type a number, the start of a label, u, s or q.")

    def meaning(self, text: str) -> Answer:
        """Return the answer that a text stands for. Raises ValueError."""
        text = text.strip()
        if text in self._labels:
            return text
        if text in _COMMANDS:
            return _COMMANDS[text]
        if text.isdecimal() and 1 <= int(text) <= len(self._labels):
            return self._labels[int(text) - 1]
        begun = [label for label in self._labels if label.casefold().startswith(text.casefold())]
        if not text or len(begun) != 1:
            several = f" begins {', '.join(map(repr, begun[:5]))}." if begun and text else ""
            raise ValueError(f"{text!r}{several or ' is not a label.'}")
        return begun[0]

    def _is_complete(self, text: str) -> bool:
        if text.isdecimal():
            return len(self._labels) < 10 and 1 <= int(text) <= len(self._labels)
        return text in _COMMANDS and not any(
            label.casefold().startswith(text) for label in self._labels
        )

    def _typed(self) -> str | None:
        """Return what is typed up to Enter, or to a key that needs none."""
        text = ""
        while True:
            key = self._key()
            if key in _END:
                return None
            if key in _ENTER or self._is_complete(text + key):
                text += key if key not in _ENTER else ""
                output.say(key.strip())
                return text
            if key in _ERASE:
                output.say("\b \b" if text else "", end="")
                text = text[:-1]
            elif key.isprintable():
                output.say(key, end="")
                text += key


class KeyReader:
    """Reads the keys of a terminal one by one; those typed ahead are kept."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore").decode

    def key(self) -> str:
        """Return the next key; arrows and the like are left out."""
        if os.name == "nt":
            return click.getchar()
        while not self._waiting:
            data = os.read(sys.stdin.fileno(), 1024)
            if not data:
                return _END[0]
            self._waiting.extend("" if data.startswith(b"\x1b") else self._decode(data))
        return self._waiting.popleft()


@contextmanager
def unbuffered() -> Iterator[None]:
    """Let the terminal pass on each key at once, without showing it."""
    if os.name == "nt" or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # TCSAFLUSH would drop what is typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _line() -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\r\n") if line else None
