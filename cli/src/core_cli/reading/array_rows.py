"""Rows of a JSON array, read element by element, with one element in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO

from core_cli import reading
from core_cli.reading.json_rows import MARKS, row_of_text, too_deep
from core_cli.reading.row import Fields, InputError, Row

_CHUNK = 2**16
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_SCALAR = re.compile(r"[^\[\]{},\n]*")
_SHOWN = 1000
_LONGEST_LITERAL = 16
"""Characters at the end of what was read that may be half of ``-Infinity`` or ``\\\\ud83d``."""


def rows_of_array(stream: IO[bytes], fields: Fields) -> Iterator[Row]:
    """Yield one row per element of a JSON array, or per object of several in a row.

    A broken element is its own error; reading continues after its closing bracket.
    """
    for line, element in _Elements(stream):
        if isinstance(element, str):
            yield row_of_text(line, element, fields)
        else:
            yield element


class _Broken(Exception):
    """An element that is not valid JSON; ``end`` is where the next one begins."""

    def __init__(self, reason: str, end: int | None = None) -> None:
        super().__init__(reason)
        self.end = end


class _Elements:
    """An iterator of element texts, each with its first line; or of rows with errors."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape")
        # Only the end of an element is searched; the element is decoded once complete.
        kept = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)
        self._scan = json.JSONDecoder(strict=False, **kept).raw_decode
        self._text, self._start, self._line = "", 0, 1
        self._ended = False
        self._opened: int | None = None

    def __iter__(self) -> Iterator[tuple[int, str | Row]]:
        while self._is_next():
            line = self._line
            try:
                end = self._end()
            except _Broken as problem:
                shown = self._text[self._start : self._start + _SHOWN]
                yield line, self._passed_over(line, shown, problem)
            else:
                element = self._text[self._start : end]
                self._go(end)
                yield line, element
        if self._opened is not None:
            text = f"line {self._line}: the array that begins on line {self._opened} is not closed."
            yield self._line, _failed(self._line, f"{text} The input may be cut off.")

    def _is_next(self) -> bool:
        """Move to the next element, over separators and the array's brackets."""
        while True:
            found = _BETWEEN.match(self._text, self._start)
            assert found is not None
            self._go(found.end())
            if self._start == len(self._text):
                if self._ended:
                    return False
                self._read()
            elif self._text[self._start] == "[" and self._opened is None:
                self._opened = self._line
                self._go(self._start + 1)
            elif self._text[self._start] == "]" and self._opened is not None:
                self._opened = None
                self._go(self._start + 1)
            else:
                return True

    def _end(self) -> int:
        """Return the end of the element. Raises `_Broken` for one that has no end."""
        while True:
            try:
                _, end = self._scan(self._text, self._start)
            except json.JSONDecodeError as error:
                self._check(error)
            except RecursionError:
                raise _Broken(too_deep()) from None
            else:
                # The end of a number is known only after it, as e+1 may follow.
                margin = 0 if self._text[self._start] in '[{"' else _LONGEST_LITERAL
                if end < len(self._text) - margin or self._ended:
                    return end
            if len(self._text) - self._start > reading.MAX_LINE_BYTES:
                raise _Broken(f"it is longer than {reading.MAX_LINE_BYTES} bytes")
            self._read()

    def _check(self, error: json.JSONDecodeError) -> None:
        """Raise `_Broken` if more input cannot complete the element."""
        open_string = error.msg.startswith("Unterminated string")
        if self._ended or not (open_string or error.pos > len(self._text) - _LONGEST_LITERAL):
            line = self._line + self._text.count("\n", self._start, error.pos)
            place = "" if line == self._line else f" on line {line}"
            # Where a name has to be, no object begins: the one before it was not closed.
            begins = "property name" in error.msg and self._text[error.pos : error.pos + 1] == "{"
            end = error.pos if begins else None
            raise _Broken(f"{error.msg.removesuffix(' at')}{place}", end) from None

    def _passed_over(self, line: int, shown: str, problem: _Broken) -> Row:
        """Return the row of a broken element, and skip to its closing bracket."""
        text = f"line {line} is not valid JSON: {problem}."
        brackets = self._text[self._start] in "[{"
        if problem.end is not None:
            self._go(problem.end)
        elif not (self._pass_over() if brackets else self._pass_over_scalar()):
            text += f" {'Its brackets are' if brackets else 'It is'} never closed: nothing after "
            text += "it is read."
            self._text, self._start, self._ended, self._opened = "", 0, True, None
        elif self._line > line:
            text += f" It is assumed to end on line {self._line}."
        return _failed(line, text, shown)

    def _pass_over(self) -> bool:
        """Skip the brackets that begin here; False if they are not closed."""
        depth, quoted, passed = 0, False, 0
        while passed <= reading.MAX_SKIPPED_BYTES:
            last = self._start
            for found in MARKS.finditer(self._text, self._start):
                mark, last = found[0], found.end()
                if mark == '"':
                    quoted = not quoted
                elif not quoted and mark in "[{":
                    depth += 1
                elif not quoted and mark in "]}":
                    depth -= 1
                    if depth == 0:
                        self._go(last)
                        return True

            # A backslash belongs to the next character.
            escape = last < len(self._text) and self._text.endswith("\\")
            passed += len(self._text) - self._start
            self._go(len(self._text) - escape)
            if self._ended:
                break
            self._read()
        return False

    def _pass_over_scalar(self) -> bool:
        """Skip to where the next element may begin; False at the end."""
        passed, end = 0, self._start + 1
        while passed <= reading.MAX_SKIPPED_BYTES:
            found = _SCALAR.match(self._text, end)
            assert found is not None
            passed += found.end() - self._start
            self._go(found.end())
            if self._start < len(self._text) or self._ended:
                return True
            self._read()
            end = self._start
        return False

    def _go(self, end: int) -> None:
        self._line += self._text.count("\n", self._start, end)
        self._start = end

    def _read(self) -> None:
        """Double the buffer, so that a long element is not parsed too often."""
        self._text, self._start = self._text[self._start :], 0
        data = self._stream.read(max(_CHUNK, len(self._text)))
        self._ended = not data
        self._text += self._decoder.decode(data, self._ended)


def _failed(line: int, problem: str, shown: str = "") -> Row:
    shown = shown.encode(errors="surrogateescape").decode(errors="replace")
    return Row(line, shown, error=InputError(problem))
