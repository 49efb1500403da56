"""Rows of JSON: a text with one value, lines with one each, or lines of OpenAI's batch files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, NoReturn

from core_cli.reading.row import Fields, InputError, Row, decoded, lines, too_long

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_DEPTH = 200
"""Brackets within brackets; whatever writes the record again needs as much of the stack."""
MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def rows_of_lines(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """Yield one row per non-blank line, a JSON object; a broken line is that row's error."""
    for number, line in enumerate(lines(stream), 1):
        if not line.strip():
            continue
        if row := too_long(number, line, name):
            yield row
            continue
        text = decoded(number, line)
        yield text if isinstance(text, Row) else row_of_text(number, text, fields)


def row_of_text(line: int, text: str, fields: Fields) -> Row:
    """Return the row of a JSON text that begins on a line, or a row with its error.

    Bytes that are not UTF-8 are surrogates in it.
    """
    import msgspec

    problem = f"line {line} is not valid JSON: "
    if is_deep(text):
        return Row(line, text, error=InputError(f"{problem}{too_deep()}."))
    try:
        record = _decoder()(text)
    except UnicodeEncodeError:
        shown = text.encode(errors="surrogateescape").decode(errors="replace")
        return Row(line, shown, error=InputError(f"line {line} is not valid UTF-8."))
    except msgspec.DecodeError as error:
        return Row(line, text, error=InputError(f"{problem}{_reason(text, error)}."))
    return fields.row(line, record, size=len(text))


@cache
def _decoder() -> Callable[[str], object]:
    import msgspec

    return msgspec.json.Decoder().decode


def is_deep(text: str) -> bool:
    """Return whether brackets are nested too deeply."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth, quoted = 0, False
    for found in MARKS.finditer(text):
        mark = found[0]
        if mark == '"':
            quoted = not quoted
        elif not quoted and mark in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif not quoted and mark in "]}":
            depth -= 1
    return False


def too_deep() -> str:
    """Return the message for a text that is nested too deeply."""
    return f"it is nested more than {MAX_DEPTH} deep"


def _reason(text: str, error: Exception) -> str:
    """Return the reason with its place, which msgspec does not give."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=str)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as found:
        return f"{found.msg.removesuffix(' at')} at character {found.pos + 1}"
    except InputError as found:
        return str(found)
    except UnicodeEncodeError:
        return "it contains half of a surrogate pair, such as \\ud800"
    return str(error).split(" - at ")[0]


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not valid JSON; use null")


FORM = "openai"
_KEYS = {"custom_id", "url", "body"}


def are_requests(head: bytes) -> bool:
    """Return whether an input with this beginning has such lines."""
    import msgspec

    try:
        first = msgspec.json.decode(head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0])
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= _KEYS


class Whole(Fields):
    """A reader that takes a record as a complete request."""

    def row(self, line: int, record: object, unit: str = "line", size: int = 0) -> Row:
        """Return the row of a request; its text is the body, for its length."""
        import msgspec

        if not isinstance(record, dict):
            problem = InputError(f"{unit} {line} is not a request: expected a JSON object.")
            return Row(line, error=problem, unit=unit)
        text = msgspec.json.encode(record.get("body")).decode()
        return Row(line, text, record, unit=unit)
