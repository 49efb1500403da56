"""Reading prompts: from arguments, from lines of text, from JSONL. A bad line is only its row's."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

from core.errors import RequestError
from core.types import Message

_JSON_NAMES = (".jsonl", ".ndjson")
_LOOKS_LIKE_JSON = re.compile(rb'\s*\{\s*["}]')
_ID_FIELDS = ("custom_id", "id")
_TEXT_FIELDS = ("prompt", "text")

MAX_LINE_BYTES = 16 * 2**20
"""More than a context of a million tokens holds; a longer line is refused, unread."""
MAX_SKIPPED_BYTES = 2**30
"""The rest of such a line is passed over; where it goes on beyond this, the input is."""
_CHUNK, _SHOWN = 2**20, 1000


class InputError(RequestError):
    """A row of the input cannot be read. The message says which, and what it should look like."""


class MissingFieldError(InputError):
    """A record has no text where it is looked for. The message says what fields it has."""


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
    lines = ((n, line) for n, line in enumerate(_lines(stream), 1) if line.strip())
    first = next(lines, None)
    if first is None:
        return

    if form == "auto":
        json = name.endswith(_JSON_NAMES) or _LOOKS_LIKE_JSON.match(first[1])
        form = "jsonl" if json else "text"

    for number, line in chain([first], lines):
        place = f"line {number}"
        if len(line) > MAX_LINE_BYTES:
            yield _too_long(place, line, name)
        else:
            yield _row(place, line.rstrip(b"\r\n"), form, field)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines, without a byte order mark; of one that is too long no more than shows that it is."""
    line = stream.readline(MAX_LINE_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    while line:
        yield line
        cut = len(line) > MAX_LINE_BYTES and not line.endswith(b"\n")
        if cut and not _skip_rest(stream):
            return
        line = stream.readline(MAX_LINE_BYTES + 1)


def _skip_rest(stream: IO[bytes]) -> bool:
    """Pass over the rest of a line; False where it does not end, as that of /dev/zero."""
    for _ in range(MAX_SKIPPED_BYTES // _CHUNK):
        rest = stream.readline(_CHUNK)
        if not rest or rest.endswith(b"\n"):
            return True
    return False


def _too_long(place: str, line: bytes, name: str) -> Row:
    source = "stdin" if name == "-" else name
    problem = InputError(
        f"{place} of {source} is longer than {MAX_LINE_BYTES} bytes, which is no prompt. Split it "
        "into lines."
    )
    return Row(place, line[:_SHOWN].decode(errors="replace"), error=problem)


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

    # The text is in the field that was named, or in the first that usually holds it.
    names = (field,) if field is not None else _TEXT_FIELDS
    found = next((name for name in names if name in body), None)
    if found is not None:
        return Row(place, _text(place, found, body[found]), identity=identity)

    # Without one, it may be a conversation.
    if field is None and "messages" in body:
        messages = _messages(place, body["messages"])
        return Row(place, messages[-1].content, messages, identity)

    raise MissingFieldError(_missing(place, names, list(body)))


def _missing(place: str, names: Sequence[str], fields: Sequence[str]) -> str:
    missing = f"{place} has no {' or '.join(map(repr, names))}."
    if not fields:
        return f"{missing} {_EXPECTED}"
    near = difflib.get_close_matches(names[0], fields, n=1) if len(names) == 1 else []
    hint = f" Did you mean --field {shlex.quote(near[0])}?" if near else ""
    told = ", ".join(map(repr, fields))
    return f"{missing} Its fields are {told:.500}: name the text's with --field.{hint}"


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
