"""Progress of the commands that fit: loading, then prompts of a total, rate, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from core_cli import interrupts, output

if TYPE_CHECKING:
    from core_cli.flags import FitFlags


class Work:
    """The progress of a command that runs prompts, fits something to them, and then saves it.

    It is a ``progress`` callback of `core_tasks`.
    """

    def __init__(self, model: str, wanted: bool) -> None:
        self._model, self._start = model, time.perf_counter()
        self._done = self._first = self._total = 0
        self._rate = self._reported = 0.0  # at the last call
        self.line = output.Progress(self.text, wanted)

    def __call__(self, done: int, total: int) -> None:
        """Set the number of finished prompts, and that of all."""
        now = time.perf_counter()
        if total != self._total or done < self._done:
            self._total, self._first, self._start = total, done, now
        elif done > self._first:
            self._rate, self._reported = (done - self._first) / (now - self._start), now
        self._done = done
        self.line.show()

    def load(self, model: str) -> None:
        """Begin again with another model."""
        self._model, self._start, self._total = model, time.perf_counter(), 0
        self.line.show()

    def text(self) -> str:
        """Return ``loading M, 3 s``, ``12 of 80 prompts, 4.1 prompts/s, 0:17 left`` or ``fitting``.

        All prompts are counted, those of several templates together.
        """
        now = time.perf_counter()
        if not self._total:
            return output.loading_text(self._model, self._start)
        if self._done == self._total:
            seconds = now - self._reported
            return f"{output.counted(self._total, 'prompt')} done; fitting, {seconds:.0f} s"
        parts = [f"{self._done} of {output.counted(self._total, 'prompt')}"]
        if self._done > self._first:
            left = (self._total - self._done) / self._rate - (now - self._reported)
            parts.append(f"{self._rate:.1f} prompts/s, {output.clock(left)} left")
        else:
            parts.append(f"{now - self._start:.0f} s")
        return ", ".join(parts)


@contextmanager
def working(flags: FitFlags, model: str) -> Iterator[Work]:
    """Show the progress of a command that saves its file at the end, and say so at Ctrl-C."""
    wanted = sys.stderr.isatty() if flags.progress is None else flags.progress
    work = Work(model, wanted)
    with work.line, interrupts.terminating(), interrupts.announced(_nothing_saved):
        work.line.show()
        yield work


def _nothing_saved() -> None:
    output.say("Interrupted: nothing was saved.")
