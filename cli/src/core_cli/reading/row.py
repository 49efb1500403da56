"""A row of input from a line or a record, and the fields with its text and its id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, TYPE_CHECKING

import click

from core.errors import RequestError
from core_cli import reading

if TYPE_CHECKING:
    from core.types import Message


class InputError(RequestError):
    """A row of the input cannot be read. The message has its place and the expected format."""


class FieldError(InputError):
    """A field of a record cannot be used, nor probably that of others. The message lists them."""


class MissingFieldError(FieldError):
    """A record lacks a field."""


_ABSENT = object()


def value_at(record: Mapping[str, object], name: str, default: object = None) -> object:
    """Return the value of a field, or of a nested one: ``mail.body``, ``turns.0.text``."""
    if name in record:
        return record[name]
    value: object = record
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return default
    return value


def has_field(record: Mapping[str, object], name: str) -> bool:
    """Return whether a record has a field, or a nested one."""
    return value_at(record, name, _ABSENT) is not _ABSENT


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as the user gave it.

    ``line`` is its first line in the input, from 1; in Parquet the number of the row. ``identity``
    is its id with the field's name. ``fields`` are all fields of the record, and ``size`` is its
    approximate size in bytes. ``text`` is the last message of a conversation.
    """

    line: int
    text: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    messages: tuple[Message, ...] | None = None
    identity: tuple[str, object] | None = None
    error: Exception | None = None
    unit: str = "line"
    size: int = 0

    @property
    def place(self) -> str:
        """The place in the input, for messages: ``line 3``."""
        return f"{self.unit} {self.line}"

    def value(self, name: str) -> object:
        """Return the value of a field, or of a nested one (``mail.body``); None without it."""
        return value_at(self.fields, name)


_CHUNK, _SHOWN_CHARACTERS = 2**20, 1000


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends; a line that is too long is cut just above the limit."""
    line = stream.readline(reading.MAX_LINE_BYTES + 1)
    mark = b"\xef\xbb\xbf"
    while line:
        cut = len(line) > reading.MAX_LINE_BYTES and not line.endswith(b"\n")
        # A cut line is still longer than the limit, so that the caller recognises it.
        yield line if cut else line.removeprefix(mark)
        if cut and not _skip_rest(stream):
            return
        line, mark = stream.readline(reading.MAX_LINE_BYTES + 1), b""


def _skip_rest(stream: IO[bytes]) -> bool:
    """Skip the rest of a line; False if it does not end, as in /dev/zero."""
    for _ in range(reading.MAX_SKIPPED_BYTES // _CHUNK):
        rest = stream.readline(_CHUNK)
        if not rest or rest.endswith(b"\n"):
            return True
    return False


def too_long(number: int, line: bytes, name: str) -> Row | None:
    """Return the error row of a line that is too long, else None."""
    if len(line) <= reading.MAX_LINE_BYTES:
        return None
    source = "stdin" if name == "-" else name
    problem = InputError(
        f"line {number} of {source} is longer than {reading.MAX_LINE_BYTES} bytes. "
        "Split it into lines."
    )
    return Row(number, line[:_SHOWN_CHARACTERS].decode(errors="replace"), error=problem)


ENCODING_ADVICE = "If Excel or another program of Windows wrote the file, pass --encoding cp1252."


def decoded(number: int, line: bytes) -> str | Row:
    """Return the text of a line without its end, or an error row if it is not UTF-8."""
    line = line.rstrip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        place = f"line {number} is not valid UTF-8 (byte {error.start + 1})."
        problem = InputError(f"{place} {ENCODING_ADVICE}")
        return Row(number, line.decode(errors="replace"), error=problem)


_ID_FIELDS = ("custom_id", "id")
_TEXT_FIELDS = ("prompt", "text")
_SHOWN, _COMPARED = 500, 200

_EXPECTED = (
    'Expected {"text": "..."}, {"prompt": "..."}, '
    '{"messages": [{"role": "user", "content": "..."}]} or an OpenAI batch line.'
)


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields for the ``text`` and the ``identity``; None selects the usual ones.

    A name with dots is a nested field: ``mail.body``. ``others`` are fields that a template uses.
    ``text_wanted`` is False if the template uses no text. ``gold`` is the field of the gold label,
    which a row may lack and a table may not. ``usual`` are the usual fields of a text.
    """

    text: str | None = None
    identity: str | None = None
    others: tuple[str, ...] = ()
    text_wanted: bool = True
    usual: tuple[str, ...] = _TEXT_FIELDS
    gold: str | None = None

    def check(self, line: int, record: Mapping[str, object], unit: str = "line") -> None:
        """Raise `click.UsageError` if a table lacks a required column; ``record`` has them all."""
        row = self.row(line, record, unit)
        if isinstance(row.error, FieldError):
            raise click.UsageError(str(row.error))
        if row.error is None:
            self.check_gold([row])

    def check_gold(self, rows: Sequence[Row]) -> None:
        """Raise `click.UsageError` if none of these rows has the field of the gold label."""
        if self.gold is None or not rows or any(has_field(row.fields, self.gold) for row in rows):
            return
        raise click.UsageError(_missing(rows[0].place, [self.gold], rows[0].fields, "--gold"))

    def row(self, line: int, record: object, unit: str = "line", size: int = 0) -> Row:
        """Return the row of a record of about ``size`` bytes, or a row with its error."""
        if not isinstance(record, dict):
            problem = InputError(f"{unit} {line} is not a JSON object. {_EXPECTED}")
            return Row(line, error=problem, unit=unit)
        identity = None
        try:
            identity = self._identity(f"{unit} {line}", record)
            text, messages = self._content(f"{unit} {line}", record)
        except InputError as error:
            return Row(line, "", record, identity=identity, error=error, unit=unit, size=size)
        return Row(line, text, record, messages, identity, unit=unit, size=size)

    def _identity(self, place: str, record: Mapping[str, object]) -> tuple[str, object] | None:
        if self.identity is not None and not has_field(record, self.identity):
            raise MissingFieldError(_missing(place, [self.identity], record, "--id-field"))
        names = _ID_FIELDS if self.identity is None else (self.identity,)
        present = (name for name in names if has_field(record, name))
        return next(((name, value_at(record, name)) for name in present), None)

    def _content(
        self, place: str, record: dict[str, object]
    ) -> tuple[str, tuple[Message, ...] | None]:
        body = record.get("body", record) if self.text is None else record
        if not isinstance(body, dict):
            raise InputError(f"{place}: body is not a JSON object. {_EXPECTED}")
        for name in self.others:
            if not has_field(record, name):
                raise MissingFieldError(_missing(place, [name], record, "--template"))

        # The text is in the named field, or in the first of the usual ones.
        names = (self.text,) if self.text is not None else self.usual
        text_field = next((name for name in names if has_field(body, name)), None)
        if text_field is not None:
            value = value_at(body, text_field)
            if self.text_wanted or isinstance(value, str):
                return _text(place, text_field, value, body), None

        # Without a text it may be a conversation, or the template needs none.
        if self.text is None and "messages" in body:
            messages = _messages(place, body["messages"])
            return messages[-1].content, messages
        if not self.text_wanted:
            return "", None
        raise MissingFieldError(_missing(place, names, body, "--text-field"))


def _missing(
    place: str, names: Sequence[str], record: Mapping[str, object], flag: str, what: str = ""
) -> str:
    """Return the message for a record without these fields, or with ``what`` is wrong instead."""
    import difflib
    import shlex

    missing = what or f"{place} has no {' or '.join(map(repr, names))}."
    known = [*islice(_paths(record), _COMPARED)]
    if not known:
        return f"{missing} {_EXPECTED}"
    near = difflib.get_close_matches(names[0], known, n=1) if len(names) == 1 else []
    shown = near and (
        f"{{{near[0]}}}" if flag == "--template" else f"{flag} {shlex.quote(near[0])}"
    )
    hint = f" Did you mean {shown}?" if shown else ""
    available = _shortened(", ".join(repr(_shortened(name)) for name in known))
    advice = " Select the text field with --text-field." if flag == "--text-field" else ""
    return f"{missing} Available fields: {available}.{advice}{hint}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_NESTED = 3


def _paths(record: Mapping[str, object], before: str = "", depth: int = _NESTED) -> Iterator[str]:
    """Yield the names of the fields, with dots for those in objects."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value and depth > 1:
            yield from _paths(value, f"{before}{name}.", depth - 1)
        else:
            yield f"{before}{name}"


def _text(place: str, name: str, value: object, record: Mapping[str, object]) -> str:
    """Return the text of a field. Raises `InputError`; null alone is an error of the row only."""
    if isinstance(value, str):
        return value
    if value is None:
        raise InputError(f"{place}: {name!r} is not a string. {_EXPECTED}")
    kind = _KINDS.get(type(value), "a number")
    problem = f"{place}: {name!r} is not a string but {kind}."
    raise FieldError(_missing(place, [name], record, "--text-field", problem))


_KINDS = {dict: "an object", list: "an array", bool: "a boolean"}


def _messages(place: str, value: object) -> tuple[Message, ...]:
    from core.messages import MessageProblem, read_messages

    try:
        messages = tuple(read_messages(value))
    except MessageProblem as problem:
        raise InputError(f"{place}: 'messages' is not valid: {problem.error()}") from None
    if not messages:
        raise InputError(f"{place}: 'messages' is empty. {_EXPECTED}")
    return messages
