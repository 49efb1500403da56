"""A row of input: made of a line or a record, with the fields that hold its text and its id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

import click

from core.errors import RequestError
from core_cli import reading

if TYPE_CHECKING:
    from core.types import Message


class InputError(RequestError):
    """A row of the input cannot be read. The message has its place and the expected format."""


class MissingFieldError(InputError):
    """A record lacks a field. The message lists its fields."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as the user gave it.

    ``line`` is its first line in the input, from 1; in Parquet the number of the row. ``identity``
    is its id with the field's name. ``fields`` are all fields of the record, and ``size`` about how
    many bytes it had. ``text`` is the last message of a conversation.
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
        """Its place in the input, for messages: ``line 3``."""
        return f"{self.unit} {self.line}"


_CHUNK, _SHOWN_CHARACTERS = 2**20, 1000


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends; a line that is too long is cut just above the limit."""
    line = stream.readline(reading.MAX_LINE_BYTES + 1)
    mark = b"\xef\xbb\xbf"
    while line:
        cut = len(line) > reading.MAX_LINE_BYTES and not line.endswith(b"\n")
        # A cut line stays longer than the limit, by which it is recognised.
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
    """Return the error row of a line that is too long; None for another."""
    if len(line) <= reading.MAX_LINE_BYTES:
        return None
    source = "stdin" if name == "-" else name
    problem = InputError(
        f"line {number} of {source} is longer than {reading.MAX_LINE_BYTES} bytes. "
        "Split it into lines."
    )
    return Row(number, line[:_SHOWN_CHARACTERS].decode(errors="replace"), error=problem)


def decoded(number: int, line: bytes) -> str | Row:
    """Return the text of a line without its end, or an error row if it is not UTF-8."""
    line = line.rstrip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        problem = InputError(f"line {number} is not valid UTF-8 (byte {error.start + 1}).")
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
    """Names of the fields for the ``text`` and the ``identity``; None stands for the usual ones.

    ``others`` are fields that a template uses. ``text_wanted`` is False if the template uses no
    text. ``usual`` are the usual fields of a text.
    """

    text: str | None = None
    identity: str | None = None
    others: tuple[str, ...] = ()
    text_wanted: bool = True
    usual: tuple[str, ...] = _TEXT_FIELDS

    def check(self, line: int, columns: Iterable[str], unit: str = "line") -> None:
        """Raise `click.UsageError` if a table lacks a required column."""
        error = self.row(line, dict.fromkeys(columns, ""), unit).error
        if isinstance(error, MissingFieldError):
            raise click.UsageError(str(error))

    def row(self, line: int, record: object, unit: str = "line", size: int = 0) -> Row:
        """Return the row of a record of about ``size`` bytes, or a row with its error."""
        if not isinstance(record, dict):
            problem = InputError(f"{unit} {line} is not a JSON object. {_EXPECTED}")
            return Row(line, error=problem, unit=unit)
        identity = None
        try:
            identity = self._identity(f"{unit} {line}", record)
            text, messages = self._asked(f"{unit} {line}", record)
        except InputError as error:
            return Row(line, "", record, identity=identity, error=error, unit=unit, size=size)
        return Row(line, text, record, messages, identity, unit=unit, size=size)

    def _identity(self, place: str, record: Mapping[str, object]) -> tuple[str, object] | None:
        if self.identity is not None and self.identity not in record:
            raise MissingFieldError(_missing(place, [self.identity], list(record), "--id-field"))
        names = _ID_FIELDS if self.identity is None else (self.identity,)
        return next(((name, record[name]) for name in names if name in record), None)

    def _asked(
        self, place: str, record: dict[str, object]
    ) -> tuple[str, tuple[Message, ...] | None]:
        body = record.get("body", record) if self.text is None else record
        if not isinstance(body, dict):
            raise InputError(f"{place}: body is not a JSON object. {_EXPECTED}")
        for name in self.others:
            if name not in record:
                raise MissingFieldError(_missing(place, [name], list(record), "--template"))

        # The text is in the named field, or in the first of the usual ones.
        names = (self.text,) if self.text is not None else self.usual
        found = next((name for name in names if name in body), None)
        if found is not None and (self.text_wanted or isinstance(body[found], str)):
            return _text(place, found, body[found]), None

        # Without a text it may be a conversation, or the template needs none.
        if self.text is None and "messages" in body:
            messages = _messages(place, body["messages"])
            return messages[-1].content, messages
        if not self.text_wanted:
            return "", None
        raise MissingFieldError(_missing(place, names, list(body), "--field"))


def _missing(place: str, names: Sequence[str], fields: Sequence[str], flag: str) -> str:
    import difflib
    import shlex

    missing = f"{place} has no {' or '.join(map(repr, names))}."
    if not fields:
        return f"{missing} {_EXPECTED}"
    known = fields[:_COMPARED]
    near = difflib.get_close_matches(names[0], known, n=1) if len(names) == 1 else []
    shown = near and (
        f"{{{near[0]}}}" if flag == "--template" else f"{flag} {shlex.quote(near[0])}"
    )
    hint = f" Did you mean {shown}?" if shown else ""
    told = _shortened(", ".join(repr(_shortened(name)) for name in known))
    advice = " Select the text field with --field." if flag == "--field" else ""
    return f"{missing} Available fields: {told}.{advice}{hint}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _text(place: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place}: {name!r} is not a string. {_EXPECTED}")
    return value


def _messages(place: str, value: object) -> tuple[Message, ...]:
    from core.messages import MessageProblem, read_messages

    try:
        messages = tuple(read_messages(value))
    except MessageProblem as problem:
        raise InputError(f"{place}: 'messages' is not valid: {problem.error()}") from None
    if not messages:
        raise InputError(f"{place}: 'messages' is empty. {_EXPECTED}")
    return messages
