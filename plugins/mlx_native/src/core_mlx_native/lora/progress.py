"""Training progress on stderr: one line that is overwritten, or an occasional line."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TextIO

from core.training import TrainStep

_RECENT = 20  # number of steps in the rates
_SECONDS = 10.0  # between two lines if lines cannot be overwritten


class Progress:
    """A progress display: loss, tokens per second, time left, memory."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self._recent: deque[TrainStep] = deque(maxlen=_RECENT)
        self._told = 0.0
        self._width = 0

    def __enter__(self) -> Progress:
        return self

    def show(self, step: TrainStep) -> None:
        """Show a step: every one on a terminal; elsewhere the first, some, and the last."""
        self._recent.append(step)
        now = time.monotonic()
        measured = step.validation_loss is not None
        due = measured or step.step == step.steps or now - self._told >= _SECONDS
        if not (self._terminal or due):
            return
        self._told = now
        line = self.line(step)
        end = "\n" if measured or not self._terminal else ""
        start = "\r" if self._terminal else ""
        self._out.write(f"{start}{line:<{self._width}}{end}")
        self._out.flush()
        self._width = 0 if end else len(line)

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
        if self._width:
            self._out.write("\n")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
