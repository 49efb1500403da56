"""Progress of a long command: one line on stderr, rewritten in place on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from core.system.terminal import visible
from core_cli import output

if TYPE_CHECKING:
    from core_cli.jobs.summary import Summary

_SECONDS = 1.0


class Progress:
    """A progress line, returned by ``text`` and redrawn every second.

    ``asked`` shows it even if stderr is not a terminal or, with False, never.
    """

    def __init__(self, text: Callable[[], str], asked: bool | None = None) -> None:
        self._text = text
        # On a shared terminal the line would mix with the results.
        alone = sys.stderr.isatty() and not output.is_terminal()
        self._drawn = alone if asked is None else asked
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._ticker: threading.Thread | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        if self._drawn and sys.stderr.isatty():
            self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        self.clear()

    def show(self) -> None:
        """Show the current state; in a log at most one line per second."""
        if not self._drawn:
            return
        if sys.stderr.isatty():
            self._draw()
        elif time.monotonic() - self._told >= _SECONDS:
            self._told = time.monotonic()
            output.say(self._text())

    def clear(self) -> None:
        """Remove the line, for other output."""
        if self._drawn and sys.stderr.isatty():
            with self._lock:
                click.echo("\r\033[K", err=True, nl=False)

    def _tick(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._draw()

    def _draw(self) -> None:
        width = output.columns() - 1
        with self._lock:
            if not self._ended.is_set():
                text = visible(self._text())[:width]
                click.echo(f"\r\033[K{text}", err=True, nl=False)


class RowCount:
    """Counts of finished rows, and the text of a progress line."""

    def __init__(self, share: Callable[[], float | None]) -> None:
        self.done = self.failed = 0
        self.counts: Mapping[str, int] = {}
        self._share = share
        self._start, self._before = time.perf_counter(), 0

    def add(self, count: int, summary: Summary) -> None:
        """Add finished rows and the summary so far."""
        self.done += count
        self.failed, self.counts = summary.failed, summary.counts

    def skip(self, count: int) -> None:
        """Set the rows that an earlier run finished, which do not count for the rate."""
        self.done, self._before = count, count

    def text(self) -> str:
        """Return ``412 rows, 20 %, 18.3 rows/s, 1:27 left; 2 failed; sports 210, ...``."""
        seconds = time.perf_counter() - self._start
        made, share = self.done - self._before, self._share()
        parts = [output.counted(self.done, "row")]
        if share is not None:
            parts.append(f"{100 * share:.0f} %")
        if made:
            parts.append(f"{made / seconds:.1f} rows/s")
        if made and share:
            whole = self.done / share
            parts.append(f"{_clock((whole - self.done) * seconds / made)} left")

        told = [", ".join(parts)]
        if self.failed:
            told.append(f"{self.failed} failed")
        if self.counts:
            first = sorted(self.counts.items(), key=lambda pair: -pair[1])[:4]
            told.append(", ".join(f"{label} {count}" for label, count in first))
        return "; ".join(told)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
