"""Rows of JSON: an object a line, or the elements of one array, read as they come."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import IO

from core.cli.reading.fields import Fields
from core.cli.reading.lines import MAX_LINE_BYTES, decoded, lines, too_long
from core.cli.reading.row import InputError, Row

_CHUNK = 2**16
_BETWEEN = " \t\r\n,"


def rows_of_lines(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """One row per line that is not blank, each a JSON object; a broken line is only its row's."""
    import msgspec

    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(lines(stream), 1):
        if not line.strip():
            continue
        if row := too_long(number, line, name):
            yield row
            continue
        text = decoded(number, line)
        if isinstance(text, Row):
            yield text
            continue
        try:
            record = decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            problem = InputError(f"line {number} is not valid JSON: {error}.")
            yield Row(number, text, error=problem)
        else:
            yield fields.row(number, record)


def rows_of_array(stream: IO[bytes], fields: Fields) -> Iterator[Row]:
    """One row per element of a JSON array, or per object of several behind one another.

    Where one is broken, nothing behind it can be told apart, so that it is the last row.
    """
    line = 1
    try:
        for line, value in _values(stream):
            yield fields.row(line, value)
    except InputError as error:
        yield Row(error.args[1] if len(error.args) > 1 else line, error=InputError(error.args[0]))


def _values(stream: IO[bytes]) -> Iterator[tuple[int, object]]:
    """The values, each with the line that it begins on; holds no more than one and a chunk."""
    decoder, text_of = json.JSONDecoder(), codecs.getincrementaldecoder("utf-8-sig")()
    text, start, line, depth, ended = "", 0, 1, 0, False

    while True:
        # Pass over what stands between values, and over the array's own brackets.
        while start < len(text) and (text[start] in _BETWEEN or text[start] in "[]"):
            if text[start] == "[" and depth:
                break  # an element that is an array itself
            depth += {"[": 1, "]": -1}.get(text[start], 0)
            line += text[start] == "\n"
            start += 1

        # A value that ends within what was read is whole: a number's end is only known behind it.
        if start < len(text):
            try:
                value, end = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                if ended or isinstance(error, RecursionError):
                    raise InputError(f"line {line} is not valid JSON: {error}.", line) from None
            else:
                if ended or end < len(text):
                    yield line, value
                    line += text.count("\n", start, end)
                    start = end
                    continue
        if ended:
            return

        # Read on: twice as much as is held, so that a long value is not tried too often.
        text, start = text[start:], 0
        if len(text) > MAX_LINE_BYTES:
            message = f"The value at line {line} is longer than {MAX_LINE_BYTES} bytes."
            raise InputError(message, line)
        data = stream.read(max(_CHUNK, len(text)))
        ended = not data
        try:
            text += text_of.decode(data, ended)
        except UnicodeDecodeError:
            raise InputError(f"The array is not valid UTF-8 behind line {line}.", line) from None
