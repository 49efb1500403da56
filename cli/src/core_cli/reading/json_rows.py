"""Rows of JSON: a text with one value, lines with one each, or lines of OpenAI's batch files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import IO, TYPE_CHECKING, NoReturn

from core_cli.reading.row import ENCODING_ADVICE, Fields, InputError, Row, decoded, lines, too_long

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_DEPTH = 200
"""Deepest nesting of brackets: writing the record again recurses as deep."""
MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)


def rows_of_lines(stream: IO[bytes], name: str, fields: Fields) -> Iterator[Row]:
    """Yield a row per non-blank line, a JSON object; a broken line becomes a row with an error."""
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

    Invalid UTF-8 is passed as surrogates.
    """
    import msgspec

    problem = f"line {line} is not valid JSON: "
    if is_deep(text):
        return Row(line, text, error=InputError(f"{problem}{too_deep()}."))
    try:
        record = _decoder()(text)
    except UnicodeEncodeError:
        shown = text.encode(errors="surrogateescape").decode(errors="replace")
        return Row(
            line, shown, error=InputError(f"line {line} is not valid UTF-8. {ENCODING_ADVICE}")
        )
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
    for match in MARKS.finditer(text):
        mark = match[0]
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
    except json.JSONDecodeError as invalid:
        return f"{invalid.msg.removesuffix(' at')} at character {invalid.pos + 1}"
    except InputError as constant:
        return str(constant)
    except UnicodeEncodeError:
        return "it contains half of a surrogate pair, such as \\ud800"
    return str(error).split(" - at ")[0]


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not valid JSON; use null")


FORM = "openai"
_KEYS = {"custom_id", "url", "body"}


def are_requests(head: bytes) -> bool:
    """Return whether the first line of an input is a request of OpenAI's batch files."""
    import msgspec

    try:
        first = msgspec.json.decode(head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
