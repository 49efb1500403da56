"""Which form an input has: by its name, and by its first bytes, which a name does not overrule."""

from __future__ import annotations

import csv
import re
import shlex
from pathlib import PurePath

import click

from core.cli.reading.table_rows import SEPARATORS, separator_of

FORMS = ("text", "jsonl", "json", "csv", "tsv", "parquet")

_SUFFIXES = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"},
}
_OBJECT = re.compile(rb'\s*\{\s*["}]')
_ARRAY = re.compile(rb"\s*\[\s*[\{\]]")
_NAMES = re.compile(r"[^\W\d][\w .()/-]{0,60}")
_KNOWN = {
    *("text", "prompt", "id", "custom_id", "message", "messages", "content", "body", "sentence"),
    *("review", "comment", "title", "label", "question", "answer", "document", "description"),
}


def form_of_name(name: str) -> str | None:
    """The form that a file's suffix names, if any."""
    return _SUFFIXES.get(PurePath(name).suffix.lower())


def recognise(name: str, head: bytes, field: str | None) -> str:
    """The form of an input whose first bytes are ``head``.

    Raises `click.UsageError` for bytes that are none of the forms, whatever the name says, and for
    those that could be two.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")
    if problem := _unreadable(name, head):
        raise click.UsageError(problem)
    if head.startswith(b"PAR1"):
        return "parquet"
    named = form_of_name(name)
    if named == "json":
        one_a_line = _OBJECT.match(head) and _lines_are_objects(head)
        return "jsonl" if one_a_line else "json"
    if named is not None:
        return named
    if _ARRAY.match(head):
        return "json"
    if _OBJECT.match(head):
        return "jsonl"
    return _text_or_table(name, head, field)


def _unreadable(name: str, head: bytes) -> str | None:
    shown = "stdin" if name == "-" else shlex.quote(name)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _has_zeros(head):
        return (
            f"{shown} is UTF-16, as Excel's 'Unicode text' is. Save it as UTF-8, or: "
            f"iconv -f UTF-16 -t UTF-8 {shown} | infer-cli ... -i -"
        )
    if head.startswith(b"\x1f\x8b"):
        return f"{shown} is packed with gzip: gunzip -c {shown} | infer-cli ... -i -"
    if head.startswith(b"PK\x03\x04"):
        return f"{shown} is a zip archive or an Excel file. Save its table as CSV."
    return None


def _has_zeros(head: bytes) -> bool:
    """Whether every second byte is zero, as in UTF-16 of Latin letters."""
    pairs = len(head) // 2
    low, high = sorted((head[0::2].count(0), head[1::2].count(0)))
    return high > 0.4 * pairs and low < 0.1 * pairs


def _lines_are_objects(head: bytes) -> bool:
    return head.split(b"\n", 1)[0].rstrip().endswith(b"}")


def _text_or_table(name: str, head: bytes, field: str | None) -> str:
    """Text, or a table that says so by the names in its header; where it may be one: refused."""
    lines = head.decode(errors="replace").splitlines()[:-1][:20] or [""]
    separator = separator_of(lines[0])
    if len(lines) < 2 or separator not in lines[0]:
        return "text"

    # A header is made of names, without a space behind the separator, as sentences have one.
    columns = next(csv.reader(lines[:1], delimiter=separator))
    if not all(_NAMES.fullmatch(column) for column in columns):
        return "text"
    form = "tsv" if separator == "\t" else "csv"
    if field in columns or _KNOWN.intersection(column.lower() for column in columns):
        return form

    # Without a name that is known, equal numbers of cells make it likely, and not sure.
    try:
        counts = {len(cells) for cells in csv.reader(lines, delimiter=separator)}
    except csv.Error:
        return "text"
    if counts == {len(columns)}:
        shown = "stdin" if name == "-" else name
        raise click.UsageError(
            f"{shown} may be {form.upper()} with the columns {', '.join(map(repr, columns))}, or "
            f"text. Say --format {form} (and --field NAME) or --format text."
        )
    return "text"


__all__ = ["FORMS", "SEPARATORS", "form_of_name", "recognise"]
