"""All output of infer-cli: data on stdout (`core.system.terminal`), messages on stderr.

JSON is UTF-8 bytes; listings are tables on a terminal, tab-separated lines elsewhere. Control
characters are escaped on both streams, whatever a text's source (`core.system.terminal`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

import click

from core.system.terminal import stream, terminal_size, visible, visible_json, visible_lines, write

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table


def is_terminal() -> bool:
    """Return whether stdout is read by a person."""
    return stream().isatty()


def has_colours() -> bool:
    """Return whether stdout is a terminal that shows colours, and the user wants them."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def check_reader() -> None:
    """Raise BrokenPipeError, as a write would, when stdout is a pipe whose reader has left."""
    if not hasattr(select, "poll"):  # Windows
        return
    try:
        descriptor = stream().fileno()
    except (OSError, ValueError):  # stdout is no file, as under a test runner
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def write_json(*values: object) -> None:
    """Write one line per value; floats that JSON cannot represent become null."""
    write(json_lines(values))


def write_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    whole: bool = False,
    fold_last: bool = False,
) -> None:
    """Write a table (see `draw`) on a terminal, tab-separated lines with a header elsewhere."""
    if is_terminal():
        draw(columns, rows, whole=whole, fold_last=fold_last)
    else:
        write_lines([columns, *rows])


def write_lines(rows: Iterable[Sequence[str]]) -> None:
    """Write tab-separated lines; tabs and newlines inside a value are shown as escapes."""
    write_text("".join("\t".join(map(visible, row)) + "\n" for row in rows))


def write_text(text: str) -> None:
    """Write lines of text; characters that the encoding of stdout lacks become escapes, too."""
    _write_encoded(visible_lines(text))


def draw(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    cut: bool = False,
    whole: bool = False,
    header: bool = True,
    fold_last: bool = False,
) -> None:
    """Draw a table, with its ``header`` or without.

    Long cells are folded, only in the last column with ``fold_last``; or ``cut``, in column one;
    or left ``whole``, so that the terminal wraps them and they can be copied in one piece.
    """
    from rich.cells import cell_len

    cells = [[visible(value) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) + 2 for column in zip(columns, *cells, strict=True)]
    console = _console(stream())
    if whole:
        console.width = max(console.width, sum(widths))
    if fold_last:
        console.width = max(console.width, sum(widths[:-1]) + _NARROWEST)
    room = max(console.width - sum(widths[1:]), 8) if cut else None
    with console.capture() as drawn:
        table = _table(columns, cells, room, header)
        for column in table.columns[:-1] if fold_last else ():
            column.no_wrap = True
        console.print(table)
    # Without the spaces that fill a line, which a narrower terminal would wrap.
    _write_encoded("".join(line.rstrip() + "\n" for line in drawn.get().split("\n")[:-1]))


def write_bytes(data: bytes) -> None:
    """Write the content of a file to stdout."""
    write(data)


def indented(text: str) -> str:
    """Return the text wrapped to the terminal, indented by four spaces."""
    width, edge = terminal_size().columns, "    "
    return textwrap.fill(visible(text), width, initial_indent=edge, subsequent_indent=edge)


def say(message: str, *, end: str = "\n") -> None:
    """Write a message to stderr, or nothing if that is closed."""
    with contextlib.suppress(OSError), Progress.hidden():
        click.echo(visible_lines(message) + end, err=True, nl=False)


def warn(message: str) -> None:
    """Write one warning to stderr."""
    say(f"Warning: {message}")


class Progress:
    """A progress line, returned by ``text`` and redrawn every second.

    ``wanted`` shows it even if stderr is not a terminal or, with False, never. A message of `say`
    goes above the line.
    """

    _current: ClassVar[Progress | None] = None

    def __init__(self, text: Callable[[], str], wanted: bool | None = None) -> None:
        # On a shared terminal the line would mix with the results.
        alone = sys.stderr.isatty() and not is_terminal()
        self._text, self._shown = text, alone if wanted is None else wanted
        self._live = self._line() if self._shown and sys.stderr.isatty() else None
        self._logged = 0.0

    def __enter__(self) -> Self:
        Progress._current = self
        self._start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.clear()
        Progress._current = None

    @classmethod
    @contextlib.contextmanager
    def hidden(cls) -> Iterator[None]:
        """Remove the current line, if any, and restore it."""
        line = cls._current
        shown = line is not None and line._live is not None and line._live.is_started
        if line is None or not shown:
            yield
            return
        line.clear()
        yield
        line._start()

    def show(self) -> None:
        """Show the current state; in a log at most one line per second."""
        if self._live is not None:
            self._start()
            self._live.refresh()
        elif self._shown and time.monotonic() - self._logged >= 1.0:
            self._logged = time.monotonic()
            say(self._text())

    def clear(self) -> None:
        """Remove the line, for other output, until the next `show`."""
        if self._live is not None:
            self._live.stop()

    def _start(self) -> None:
        if self._live is not None and not self._live.is_started:
            self._live.start()
            # rich hides the cursor, which would stay hidden if the process was killed or stopped.
            self._live.console.show_cursor()

    def _line(self) -> Live | None:
        """Return a line that is redrawn; None for a terminal that cannot, such as TERM=dumb."""
        from rich.live import Live
        from rich.text import Text

        console = _console(sys.stderr)
        if not console.is_interactive:
            return None

        def line() -> Text:
            # The terminal may have been resized.
            console.width = min(terminal_size(sys.stderr).columns, _WIDEST)
            return Text(visible(self._text()), no_wrap=True, overflow="crop")

        # Messages go past rich, which would wrap them, so that commands could not be copied.
        return Live(
            console=console,
            get_renderable=line,
            transient=True,
            refresh_per_second=1,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def clock(seconds: float) -> str:
    """Return a duration as text: ``1:27``, ``2:05:00``."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def loading(model: str | None, wanted: bool | None) -> Iterator[None]:
    """Show that a model is being loaded."""
    start = time.perf_counter()
    with Progress(lambda: loading_text(model, start), wanted) as line:
        line.show()
        yield


def loading_text(model: str | None, start: float) -> str:
    """Return ``loading M, 3 s``."""
    return f"loading {model}, {time.perf_counter() - start:.0f} s"


def hear_logs() -> None:
    """Show log messages of libraries from level warning, as Python's default handler would."""
    import logging

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(self.format(record))

    logging.lastResort = Heard(logging.WARNING)


def counted(number: int, unit: str) -> str:
    """Return a count with its noun: ``1 row``, ``2 rows``."""
    return f"{number} {unit}{'' if number == 1 else 's'}"


def human_size(size: int) -> str:
    """Return a size in decimal units: ``270.1 MB``."""
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{size} B" if unit == "B" else f"{number:.1f} {unit}"


_NARROWEST = 16
"""Columns that a folded last column has at least."""

_WIDEST = 100_000
"""Columns that a terminal may claim to have."""


def _console(file: TextIO) -> Console:
    from rich.console import Console

    columns, lines = terminal_size(file)  # of COLUMNS and LINES, rich takes any digits
    size: dict[str, Any] = {"width": min(columns, _WIDEST), "height": lines}
    console = Console(file=file, **size)
    # Where no colour is wanted, rich alone would keep bold.
    return Console(file=file, color_system=None, **size) if console.no_color else console


def _table(columns: Sequence[str], cells: list[list[str]], room: int | None, header: bool) -> Table:
    """Return a table whose first column is cut at ``room``, if given; others are folded."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="", show_header=header)
    for name in columns:
        table.add_column(Text.assemble((name, "bold")), overflow="fold")
    if room is not None:
        first = table.columns[0]
        first.overflow, first.no_wrap, first.max_width = "ellipsis", True, room
    for row in cells:
        table.add_row(*map(Text, row))  # as Text, since user data is no markup
    return table


def _write_encoded(text: str) -> None:
    write(text.encode(stream().encoding or "utf-8", "backslashreplace"))


def json_lines(values: Iterable[object]) -> bytes:
    """Return one line of JSON per value; control characters become JSON escapes."""
    return b"".join(_encoded(value) + b"\n" for value in values)


def _encoded(value: object) -> bytes:
    import msgspec

    try:
        return visible_json(msgspec.json.encode(value))
    except UnicodeEncodeError:  # not UTF-8, as a file's name; JSON's own escapes can carry it
        return visible_json(json.dumps(msgspec.to_builtins(value)).encode("ascii"))
