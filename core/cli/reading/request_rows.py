"""Rows that are lines of OpenAI's batch files: each a request of its own, kept as it came."""

from __future__ import annotations

from core.cli.reading.fields import Fields
from core.cli.reading.row import InputError, Row

FORM = "openai"
_KEYS = {"custom_id", "url", "body"}


def are_requests(head: bytes) -> bool:
    """Whether an input that begins so has such lines."""
    import msgspec

    try:
        first = msgspec.json.decode(head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0])
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= _KEYS


class Whole(Fields):
    """Takes a record as a whole: what is asked stands in it."""

    def row(self, line: int, record: object, unit: str = "line", size: int = 0) -> Row:
        """The row of a request; its text is the body, for its length."""
        import msgspec

        if not isinstance(record, dict):
            problem = InputError(f"{unit} {line} is not a JSON object, as a request is.")
            return Row(line, error=problem, unit=unit)
        text = msgspec.json.encode(record.get("body")).decode()
        return Row(line, text, record, unit=unit)
