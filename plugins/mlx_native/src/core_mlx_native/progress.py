"""Progress of long commands on stderr: a bar on a terminal; elsewhere nothing, or a few lines."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

    from core.training import TrainStep

_RECENT = 20  # number of steps in the rates
_SECONDS = 10.0  # between two lines if there is no bar


def _bar(out: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    console = Console(file=out)
    is_shown = out.isatty() and console.is_interactive  # False for TERM=dumb
    return Progress(*columns, console=console, transient=True, disable=not is_shown)


def _stop(bar: Progress) -> None:
    if not bar.disable:  # rich before 14.3 prints an empty line for a disabled bar
        bar.stop()


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how much of a total is done, and the time left, on a terminal."""
    bar = _bar(sys.stderr)
    task = bar.add_task(label, total=None)
    start = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal start
        if not done:
            start = time.monotonic()
        left = (total - done) * (time.monotonic() - start) / done if done else None
        words = [label, f"{done}/{total}", "" if left is None else f"{_clock(left)} left"]
        bar.update(task, completed=done, total=total, description="  ".join(filter(None, words)))

    bar.start()
    try:
        yield show
    finally:
        _stop(bar)


class TrainingProgress:
    """A display of a training: loss, tokens per second, time left, memory."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._bar = _bar(out or sys.stderr)
        self._task = self._bar.add_task("", total=None)
        self._recent: deque[TrainStep] = deque(maxlen=_RECENT)
        self._printed = 0.0  # when the last line was

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def show(self, step: TrainStep) -> None:
        """Show a step on the bar; print measured steps, the last, and without a bar some others."""
        self._recent.append(step)
        line, now = self.line(step), time.monotonic()
        self._bar.update(self._task, description=line, completed=step.step, total=step.steps)

        is_due = self._bar.disable and now - self._printed >= _SECONDS
        if is_due or step.validation_loss is not None or step.step == step.steps:
            self._bar.console.print(line, soft_wrap=True, markup=False, highlight=False)
            self._printed = now

    def line(self, step: TrainStep) -> str:
        """Return the line for a step; rates are means over the last steps."""
        seconds = sum(recent.seconds for recent in self._recent)
        tokens = sum(recent.tokens for recent in self._recent)
        left = (step.steps - step.step) * seconds / len(self._recent)
        words = [
            f"step {step.step}/{step.steps}",
            f"loss {step.loss:.4f}",
            f"{tokens / seconds:.0f} tokens/s" if seconds else "",
            f"{_clock(left)} left",
            f"{step.peak_memory_bytes / 1e9:.2f} GB" if step.peak_memory_bytes else "",
            f"validation {step.validation_loss:.4f}" if step.validation_loss is not None else "",
        ]
        return "  ".join(filter(None, words))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _stop(self._bar)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
