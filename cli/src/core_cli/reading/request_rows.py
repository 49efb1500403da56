"""Rows from lines of OpenAI's batch files, each a request, kept unchanged."""

from __future__ import annotations

from core_cli.reading.fields import Fields
from core_cli.reading.row import InputError, Row

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
