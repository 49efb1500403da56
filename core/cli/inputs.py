"""Reading prompts: from arguments, from lines of text, from JSONL. A bad line is only its row's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

from core.errors import RequestError
from core.types import Message

_JSON_NAMES = (".jsonl", ".ndjson")
_LOOKS_LIKE_JSON = re.compile(rb'\s*\{\s*["}]')
_ID_FIELDS = ("custom_id", "id")
_TEXT_FIELDS = ("prompt", "text")


class InputError(RequestError):
    """A row of the input cannot be read. The message says which, and what it should look like."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as the user gave it.

    ``place`` says where it stands, for messages. ``identity`` is what the user called it, under
    the key it came with. Of a conversation, ``text`` is the last message.
    """

    place: str
    text: str = ""
    messages: tuple[Message, ...] | None = None
    identity: tuple[str, object] | None = None
    error: Exception | None = None


def rows_of_arguments(prompts: Sequence[str]) -> Iterator[Row]:
    """One row per argument."""
    for number, prompt in enumerate(prompts, 1):
        place = f"prompt {number}"
        try:
            prompt.encode()
        except UnicodeEncodeError:  # bytes of the command line that are not UTF-8
            shown = prompt.encode(errors="replace").decode()
            yield Row(place, shown, error=InputError(f"{place} is not valid UTF-8."))
        else:
            yield Row(place, prompt)


def rows_of_stream(stream: IO[bytes], name: str, form: str, field: str | None) -> Iterator[Row]:
    """One row per line that is not blank, as ``form``: ``text``, ``jsonl``, or ``auto``.

    ``auto`` is JSONL when the name ends in .jsonl or the first line looks like a JSON object.
    """
    lines = ((n, line) for n, line in enumerate(_without_bom(stream), 1) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    if form == "auto":
        json = name.endswith(_JSON_NAMES) or _LOOKS_LIKE_JSON.match(first[1])
        form = "jsonl" if json else "text"
    for number, line in chain([first], lines):
        yield _row(f"line {number}", line.rstrip(b"\r\n"), form, field)


def _without_bom(stream: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(stream):
        yield line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line


def _row(place: str, line: bytes, form: str, field: str | None) -> Row:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        problem = InputError(f"{place} is not valid UTF-8 (byte {error.start + 1}).")
        return Row(place, line.decode(errors="replace"), error=problem)
    if form == "text":
        return Row(place, text)
    return _json_row(place, text, field)


def _json_row(place: str, line: str, field: str | None) -> Row:
    import msgspec

    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return Row(place, line, error=InputError(f"{place} is not valid JSON: {error}."))
    if not isinstance(record, dict):
        return Row(place, line, error=InputError(f"{place} is not a JSON object. {_EXPECTED}"))
    identity = next(((name, record[name]) for name in _ID_FIELDS if name in record), None)
    try:
        return _record_row(place, record, field, identity)
    except InputError as error:
        return Row(place, line, identity=identity, error=error)


def _record_row(
    place: str, record: dict[str, Any], field: str | None, identity: tuple[str, object] | None
) -> Row:
    body = record.get("body", record) if field is None else record
    if not isinstance(body, dict):
        raise InputError(f"{place}: body is not a JSON object. {_EXPECTED}")
    names = (field,) if field is not None else _TEXT_FIELDS
    found = next((name for name in names if name in body), None)
    if found is not None:
        return Row(place, _text(place, found, body[found]), identity=identity)
    if field is None and "messages" in body:
        messages = _messages(place, body["messages"])
        return Row(place, messages[-1].content, messages, identity)
    raise InputError(f"{place} has no {' or '.join(map(repr, names))}. {_EXPECTED}")


def _text(place: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place}: {name!r} is not a string. {_EXPECTED}")
    return value


def _messages(place: str, value: object) -> tuple[Message, ...]:
    import msgspec

    try:
        messages = msgspec.convert(value, tuple[Message, ...])
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: 'messages' cannot be used: {error}. {_EXPECTED}") from None
    if not messages:
        raise InputError(f"{place}: 'messages' is empty. {_EXPECTED}")
    return messages


_EXPECTED = (
    'A line is {"text": "..."}, {"prompt": "..."}, '
    '{"messages": [{"role": "user", "content": "..."}]}, or an OpenAI batch line.'
)
