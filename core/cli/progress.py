"""How far a long command is: one line on stderr, rewritten in place, on a terminal only."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

from core.cli import output


class Progress:
    """Counts what is done. At its end, ``summary`` prints the total and the rate on stderr.

    ``unit`` is the name of one: "row".
    """

    def __init__(self, unit: str, summary: bool = False) -> None:
        self.done = 0
        self._unit, self._summary = unit, summary
        self._start = time.perf_counter()
        # On a shared terminal the line would stand in the middle of the results.
        self._drawn = sys.stderr.isatty() and not sys.stdout.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()
        if self._summary:
            output.say(self._text())

    def add(self, count: int) -> None:
        """Count some more, and show it."""
        self.done += count
        if self._drawn:
            click.echo(f"\r{self._text()}", err=True, nl=False)

    def clear(self) -> None:
        """Take the line away, for other output."""
        if self._drawn:
            click.echo("\r\033[K", err=True, nl=False)

    def _text(self) -> str:
        seconds = time.perf_counter() - self._start
        rate = self.done / seconds if seconds else 0.0
        done = output.counted(self.done, self._unit)
        return f"{done} in {seconds:.1f} s, {rate:.1f} {self._unit}s/s"
