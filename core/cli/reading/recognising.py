"""Which form an input has: by its name, and by its first bytes, which a name does not overrule."""

from __future__ import annotations

import csv
import re
import shlex

import click

from core.cli.reading.fields import Fields
from core.cli.reading.forms import form_of_name
from core.cli.reading.head import Head
from core.cli.reading.table_rows import SEPARATORS, separator_of

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
_UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def form_of(name: str, head: Head, form: str, fields: Fields) -> str:
    """The form of an input with these first bytes; ``form`` is what was asked for, or "auto".

    Raises `click.UsageError` for bytes that are none of the forms, or of another one than was asked
    for, and for those that could be two.
    """
    data = head.data.removeprefix(b"\xef\xbb\xbf")
    if problem := _unreadable(name, data):
        raise click.UsageError(problem)
    packed = data.startswith(b"PAR1")
    if packed and form not in ("auto", "parquet"):
        raise click.UsageError(f"{_shown(name)} is Parquet. Leave --format {form} away.")

    found = form if form != "auto" else "parquet" if packed else _found(name, data, head, fields)
    if found == "text" and (fields.text is not None or fields.identity is not None):
        flag = "--field" if fields.text is not None else "--id-field"
        raise click.UsageError(
            f"{flag} names a field, and {_shown(name)} looks like lines of text, which have none. "
            "For a table or JSON say so: --format csv, tsv, jsonl or json."
        )
    # Where text was asked for, a line may hold what it wants.
    if found in ("jsonl", "csv", "tsv") or (found, form) == ("text", "auto"):
        _refuse_old_ends(name, data)
    return found


def is_told_by(name: str, form: str, line: bytes) -> bool:
    """Whether the first line alone says which form an input has, so that none is waited for."""
    line = line.removeprefix(b"\xef\xbb\xbf").strip()
    if form != "auto" or form_of_name(name) is not None or not line:
        return form != "auto"
    if line.startswith((b"{", b"[")):
        return bool(_OBJECT.match(line)) and line.endswith(b"}")
    return not any(separator.encode() in line for separator in SEPARATORS)


def _found(name: str, data: bytes, head: Head, fields: Fields) -> str:
    named = form_of_name(name)
    if named in ("json", "jsonl") and _ARRAY.match(data):
        return "json"
    if named == "json":
        if not _JSON.match(data):
            raise click.UsageError(f"{_shown(name)} is called JSON and holds none. Say --format.")
        return "json" if data.lstrip().startswith(b"[") else _of_objects(data)
    if named is not None:
        return named
    if _ARRAY.match(data):
        return "json"
    return _of_objects(data) if _OBJECT.match(data) else _text_or_table(name, head, fields)


def _unreadable(name: str, data: bytes) -> str | None:
    """What is wrong with bytes that are no text at all, and what makes text of them."""
    shown = _shown(name)
    if data.startswith(_UTF_32):
        return (
            f"{shown} is UTF-32. Save it as UTF-8, or: {_piped('iconv -f UTF-32 -t UTF-8', name)}"
        )
    if data.startswith(_UTF_16) or (half := _zeros(data)):
        coding = "UTF-16" if data.startswith(_UTF_16) else f"UTF-16{half}"
        command = _piped(f"iconv -f {coding} -t UTF-8", name)
        return f"{shown} is UTF-16, as Excel's 'Unicode text' is. Save it as UTF-8, or: {command}"
    for magic, packer, command in _PACKED:
        if re.match(magic, data):
            return f"{shown} is packed with {packer}: {_piped(command, name)}"
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return f"{shown} is a zip archive or an Excel file. Save its table as CSV."
    return None


def _zeros(data: bytes) -> str:
    """The byte order of UTF-16 without a mark, where every second byte of Latin letters is zero."""
    pairs = len(data) // 2
    first, second = data[0::2].count(0), data[1::2].count(0)
    if max(first, second) <= 0.4 * pairs or min(first, second) >= 0.1 * pairs:
        return ""
    return "LE" if second > first else "BE"


def _refuse_old_ends(name: str, data: bytes) -> None:
    if b"\n" not in data and b"\r" in data.rstrip():
        raise click.UsageError(
            f"{_shown(name)} ends its lines with carriage returns alone. Save it with other line "
            "ends, or: " + _piped("tr '\\r' '\\n'", name, reads_stdin=True)
        )


def _of_objects(data: bytes) -> str:
    """JSON lines; or JSON where an object goes on behind its first line."""
    first, newline, rest = data.strip().partition(b"\n")
    begun = first.rstrip().endswith((b"{", b"[", b",", b":"))
    if newline and (begun or not (first.rstrip().endswith(b"}") or _OBJECT.match(rest))):
        return "json"
    return "jsonl"


def _text_or_table(name: str, head: Head, fields: Fields) -> str:
    """Text, or a table that says so by the names in its header; where it may be one: refused."""
    text = head.data.decode("utf-8-sig", "replace")
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    separator = separator_of(lines[0])
    if len(lines) < 2 or separator not in lines[0]:
        return "text"
    cells = _cells(lines, separator, head.whole)
    columns = cells[0] if cells else []

    # A header is made of names, without a space behind the separator, as sentences have one.
    if len(set(columns)) < len(columns) or not all(map(_NAMES.fullmatch, columns)):
        return "text"
    form = "tsv" if separator == "\t" else "csv"
    if fields.text in columns:
        return form

    # By a name that is known and equal numbers of cells it is one; by either alone it may be.
    known = bool(_KNOWN.intersection(column.lower() for column in columns))
    even = all(len(row) == len(columns) for row in cells if row)
    if known and even:
        return form
    if known or (even and len(cells) > 1):
        raise click.UsageError(
            f"{_shown(name)} may be {form.upper()} with the columns "
            f"{', '.join(map(repr, columns))}, or text. "
            f"Say --format {form} (and --field NAME) or --format text."
        )
    return "text"


def _cells(lines: list[str], separator: str, whole: bool) -> list[list[str]]:
    """The records of the first lines; the last is left out where it may be cut."""
    try:
        cells = list(csv.reader([f"{line}\n" for line in lines], delimiter=separator))
    except csv.Error:
        return []
    return cells if whole or len(cells) < 2 else cells[:-1]


def _shown(name: str) -> str:
    return "stdin" if name == "-" else shlex.quote(name)


def _piped(command: str, name: str, reads_stdin: bool = False) -> str:
    """A command line that has a program make something readable of the input."""
    if name == "-":
        return f"... | {command} | infer-cli ... -i -"
    between = " < " if reads_stdin else " "
    return f"{command}{between}{shlex.quote(name)} | infer-cli ... -i -"
