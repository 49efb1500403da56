"""Writing to stdout: JSON as UTF-8 bytes, tables on a terminal, tab-separated lines elsewhere."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence


def is_terminal() -> bool:
    """Whether stdout is read by a person."""
    return sys.stdout.isatty()


def write_json(*values: object) -> None:
    """One line per value; floats that JSON cannot hold become null."""
    _write(b"".join(_encoded(value) + b"\n" for value in values))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines under a header line elsewhere."""
    if is_terminal():
        draw(columns, rows)
    else:
        write_lines([columns, *rows])


def write_lines(rows: Iterable[Sequence[str]]) -> None:
    """Tab-separated lines; tabs and newlines inside a value are shown as escapes."""
    write_text("".join("\t".join(map(visible, row)) + "\n" for row in rows))


def write_text(text: str) -> None:
    """Text as it is; characters that the encoding of stdout lacks become escapes."""
    _write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def draw(columns: Sequence[str], rows: Iterable[Sequence[str]], *, cut: bool = False) -> None:
    """Draw a table. What is too long for the terminal is folded, or ``cut`` in column one."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(value) for value in row] for row in rows]
    console = Console(file=sys.stdout)
    if console.no_color:  # rich alone would keep bold
        console = Console(file=sys.stdout, color_system=None)
    room = console.width - sum(
        max(map(cell_len, column)) + 2 for column in list(zip(columns, *cells, strict=True))[1:]
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(
        columns[0],
        overflow="ellipsis" if cut else "fold",
        no_wrap=cut,
        max_width=max(room, 8) if cut else None,
    )
    for column in columns[1:]:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))  # as Text, since user data is no markup
    console.print(table)


def visible(text: str) -> str:
    """The text with control characters as escapes, so that none reaches a terminal or a column."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def human_size(size: int) -> str:
    """Bytes in decimal units: ``270.1 MB``."""
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


# Controls, surrogates (of file names that are not UTF-8), line and paragraph separators.
_HIDDEN = ("Cc", "Cs", "Zl", "Zp")


def _write(data: bytes) -> None:
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:  # under PYTHONUNBUFFERED a signal may leave a part unwritten
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _encoded(value: object) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file name that is not UTF-8; JSON's own escapes can carry it
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
