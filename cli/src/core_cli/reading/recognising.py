"""Detects the format of an input by its first bytes, which can be read again, and by its name."""

from __future__ import annotations

import csv
import io
import os
import re
import select
import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import click

from core_cli.reading import form_of_name
from core_cli.reading.row import Fields
from core_cli.reading.table_rows import SEPARATOR_LINE, SEPARATORS, separator_of

_BYTES, _LINES = 2**16, 21
_GRACE = 0.05  # seconds to wait for a writer
Decides = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of an input; ``whole`` if they are all of it."""

    data: bytes
    whole: bool = False


def looked_at(stream: IO[bytes], decides: Decides = lambda line: False) -> tuple[Head, IO[bytes]]:
    """Return the head of a stream, and a stream that begins with it.

    The format must not depend on how a pipe delivers its bytes, so this waits for 21 lines, or only
    for the first one if ``decides`` returns True for it.
    """
    start = stream.tell() if is_file(stream) else None
    pipe = io.BufferedReader(_Pipe(stream), _BYTES)
    source = stream if start is not None else pipe
    data, line = b"", b"\n"
    for number in range(_LINES):
        line = source.readline(_BYTES - len(data))
        data += line
        if not line or len(data) == _BYTES or (number == 0 and decides(data)):
            break
    head = Head(data, whole=not line)
    if start is None:
        return head, io.BufferedReader(_Again(data, pipe), _BYTES)
    stream.seek(start)
    return head, stream


def is_file(stream: IO[bytes]) -> bool:
    """Return whether the stream is a regular, seekable file."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def more_waits(stream: IO[bytes]) -> bool:
    """Return whether a stream of `looked_at` can be read without a long wait; True if unknown."""
    raw = getattr(stream, "raw", None)
    return not isinstance(raw, _Again) or stream.tell() < raw.tell() or raw.more_waits()


class _Pipe(io.RawIOBase):
    """A stream that returns available bytes at once, and counts them."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # Reads only the available bytes, so that typed lines are returned at once.
        part = self._read(len(buffer))
        buffer[: len(part)] = part
        self._count += len(part)
        return len(part)

    def tell(self) -> int:
        return self._count

    def more_waits(self) -> bool:
        """Return whether bytes are available, or the end is reached."""
        try:
            return bool(select.select([self._stream], [], [], _GRACE)[0])
        except (OSError, ValueError):  # no descriptor, or Windows
            return True

    def _read(self, size: int) -> bytes:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            return bytes(self._stream.read1(size))
        return os.read(descriptor, size)


class _Again(_Pipe):
    """A stream with the bytes that were read from it prepended."""

    def __init__(self, data: bytes, stream: Any) -> None:
        super().__init__(stream)
        self._data = data

    def more_waits(self) -> bool:
        """Return whether bytes are buffered here or available in the stream."""
        raw = self._stream.raw
        return bool(self._data or self._stream.tell() < raw.tell() or raw.more_waits())

    def _read(self, size: int) -> bytes:
        part = self._data[:size] or self._stream.read1(size)
        self._data = self._data[size:]
        return part


_OBJECT = re.compile(rb'\s*\{\s*["}]')
_ARRAY = re.compile(rb'\s*\[\s*(?:\{\s*["}]|\]\s*\Z)')
_JSON = re.compile(rb"\s*(?:[\[{]|\Z)")
_NAMES = re.compile(r"[^\W\d][\w .()/-]{0,60}")
_KNOWN = {
    *("text", "prompt", "id", "custom_id", "message", "messages", "content", "body", "sentence"),
    *("review", "comment", "title", "label", "question", "answer", "document", "description"),
}
_PACKED = (
    (rb"\x1f\x8b", "gzip", "gunzip -c"),
    (rb"\xfd7zXZ\x00", "xz", "xz -dc"),
    (rb"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"),
    (rb"BZh[1-9]1AY&SY", "bzip2", "bunzip2 -c"),
)
_ZIP = b"PK\x03\x04"
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def form_of(name: str, head: Head, form: str, fields: Fields) -> str:
    """Return the format of an input with these first bytes; ``form`` is as requested, or "auto".

    Raises `click.UsageError` for bytes of an unknown, another or an ambiguous format.
    """
    data = head.data.removeprefix(b"\xef\xbb\xbf")
    if data.startswith(_ZIP) and form_of_name(name) == "xlsx" and form == "auto":
        return "xlsx"
    if problem := _unreadable(name, data) if form != "xlsx" else None:
        raise click.UsageError(problem)
    packed = data.startswith(b"PAR1")
    if packed and form not in ("auto", "parquet"):
        raise click.UsageError(f"{_shown(name)} is Parquet, not {form}. Remove --format {form}.")

    detected = (
        form if form != "auto" else "parquet" if packed else _detected(name, data, head, fields)
    )
    named = {"--text-field": fields.text, "--id-field": fields.identity, "--gold": fields.gold}
    flag = next((flag for flag, field in named.items() if field is not None), None)
    if detected == "text" and flag is not None:
        raise click.UsageError(
            f"{flag} requires fields, but {_shown(name)} looks like plain text. If it is a table "
            "or JSON, pass --format csv, tsv, jsonl or json."
        )
    # If text was requested, a line may have any content.
    if detected in ("jsonl", "csv", "tsv") or (detected, form) == ("text", "auto"):
        _refuse_old_ends(name, data)
    return detected


def is_decided_by(name: str, form: str, line: bytes) -> bool:
    """Return whether the first line alone decides the format, so that no other needs to be read."""
    line = line.removeprefix(b"\xef\xbb\xbf").strip()
    if form != "auto" or form_of_name(name) is not None or not line:
        return form != "auto"
    if line.startswith((b"{", b"[")):
        return bool(_OBJECT.match(line)) and line.endswith(b"}")
    return not any(separator.encode() in line for separator in SEPARATORS)


def _detected(name: str, data: bytes, head: Head, fields: Fields) -> str:
    named = form_of_name(name)
    if named in ("json", "jsonl") and _ARRAY.match(data):
        return "json"
    if named == "json":
        if not _JSON.match(data):
            raise click.UsageError(f"{_shown(name)} is not JSON, despite its name. Pass --format.")
        return "json" if data.lstrip().startswith(b"[") else _of_objects(data)
    if named is not None:
        return named
    if _ARRAY.match(data):
        return "json"
    return _of_objects(data) if _OBJECT.match(data) else _text_or_table(name, head, fields)


def _unreadable(name: str, data: bytes) -> str | None:
    """Return the error for bytes that are not text, with a command that converts them."""
    shown = _shown(name)
    if data.startswith(_UTF_32):
        command = _piped("iconv -f UTF-32 -t UTF-8", name)
        return f"{shown} is UTF-32. Pass --encoding utf-32, or convert it: {command}"
    marked = data.startswith(_UTF_16)
    half = "" if marked else _zeros(data)
    if marked or half:
        coding = f"UTF-16{half}"
        command = _piped(f"iconv -f {coding} -t UTF-8", name)
        return (
            f"{shown} is UTF-16, like Excel's 'Unicode text'. Pass --encoding utf-16{half}, or "
            f"convert it: {command}"
        )
    for magic, packer, command in _PACKED:
        if re.match(magic, data):
            return f"{shown} is {packer}-compressed. Decompress it first: {_piped(command, name)}"
    if data.startswith(_ZIP) or data.startswith(b"\xd0\xcf\x11\xe0"):
        return (
            f"{shown} is a zip archive or an old Excel file. Save the table as CSV or .xlsx; for "
            "a workbook of another name, pass --format xlsx."
        )
    return None


def _zeros(data: bytes) -> str:
    """Return the byte order of UTF-16 without a mark, in which half of the bytes are zero."""
    pairs = len(data) // 2
    first, second = data[0::2].count(0), data[1::2].count(0)
    if max(first, second) <= 0.4 * pairs or min(first, second) >= 0.1 * pairs:
        return ""
    return "LE" if second > first else "BE"


def _refuse_old_ends(name: str, data: bytes) -> None:
    if b"\n" not in data and b"\r" in data.rstrip():
        raise click.UsageError(
            f"{_shown(name)} has carriage returns as line ends. Save it with line feeds, or "
            "convert it: " + _piped("tr '\\r' '\\n'", name, reads_stdin=True)
        )


def _of_objects(data: bytes) -> str:
    """Return JSON lines, or JSON if an object continues after its first line."""
    first, newline, rest = data.strip().partition(b"\n")
    begun = first.rstrip().endswith((b"{", b"[", b",", b":"))
    if newline and (begun or not (first.rstrip().endswith(b"}") or _OBJECT.match(rest))):
        return "json"
    return "jsonl"


def _text_or_table(name: str, head: Head, fields: Fields) -> str:
    """Return text, or a table if the names in its header show it; raise if ambiguous."""
    text = head.data.decode("utf-8-sig", "replace")
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    if SEPARATOR_LINE.fullmatch(lines[0]):
        return "csv"
    separator = separator_of(lines[0])
    if len(lines) < 2 or separator not in lines[0]:
        return "text"
    cells = _cells(lines, separator, head.whole)
    columns = cells[0] if cells else []

    # A header has names without a space after the separator, unlike sentences.
    if len(set(columns)) < len(columns) or not all(map(_NAMES.fullmatch, columns)):
        return "text"
    form = "tsv" if separator == "\t" else "csv"
    if fields.text in columns:
        return form

    # A known name and equal numbers of cells make it a table; one of the two, ambiguous.
    known = bool(_KNOWN.intersection(column.lower() for column in columns))
    even = all(len(row) == len(columns) for row in cells if row)
    if known and even:
        return form
    if known or (even and len(cells) > 1):
        raise click.UsageError(
            f"Cannot tell whether {_shown(name)} is {form.upper()} (columns "
            f"{', '.join(map(repr, columns))}) or plain text. "
            f"Pass --format {form} (and --text-field NAME) or --format text."
        )
    return "text"


def _cells(lines: list[str], separator: str, whole: bool) -> list[list[str]]:
    """Return the records of the first lines, without the last if it may be cut."""
    try:
        cells = list(csv.reader([f"{line}\n" for line in lines], delimiter=separator))
    except csv.Error:
        return []
    return cells if whole or len(cells) < 2 else cells[:-1]


def _shown(name: str) -> str:
    return "stdin" if name == "-" else shlex.quote(name)


def _piped(command: str, name: str, reads_stdin: bool = False) -> str:
    """Return a command line that converts the input with another program."""
    if name == "-":
        return f"... | {command} | infer-cli ... -i -"
    between = " < " if reads_stdin else " "
    return f"{command}{between}{shlex.quote(name)} | infer-cli ... -i -"
