"""A streamed answer on stdout: on a terminal, the thoughts that the model marks are dimmed."""

from __future__ import annotations

from collections.abc import Iterator

from core.rendering import THOUGHTS
from core.system.terminal import write
from core_cli import output

_DIM, _PLAIN = b"\x1b[2m", b"\x1b[22m"


class Display:
    """Writes an answer part by part.

    ``end``: as of `Thoughts`. ``begun``: some of the answer is shown already.
    Elsewhere than on a terminal the answer is written as it is, without
    the thoughts if they are hidden.
    """

    def __init__(
        self, end: str | None = None, *, begun: bool = False, hides_thoughts: bool = False
    ) -> None:
        self._hides, self._dims = hides_thoughts, output.has_colours()
        splits = hides_thoughts or self._dims
        self._thoughts = Thoughts(end) if splits else None
        self._is_dimmed, self._begun = False, begun

    def write(self, text: str) -> None:
        """Write the next part of the answer."""
        if self._thoughts is None:
            output.write_text(text)
            return
        for part in self._thoughts.feed(text):
            self._show(*part)

    def end(self) -> None:
        """Write what is left, and end the dimmed text."""
        for part in self._thoughts.rest() if self._thoughts else ():
            self._show(*part)
        self._dim(False)

    def _show(self, text: str, is_thought: bool) -> None:
        if is_thought and self._hides:
            return
        if not self._begun:  # the line break after a mark
            text = text.lstrip("\n")
            self._begun = bool(text)
        self._dim(is_thought and self._dims)
        output.write_text(text)

    def _dim(self, dimmed: bool) -> None:
        if dimmed != self._is_dimmed:
            self._is_dimmed = dimmed
            write(_DIM if dimmed else _PLAIN)


class Thoughts:
    """Splits a streamed answer into thoughts and text; the marks around thoughts are left out.

    ``end``: the mark that ends the thoughts that the prompt began. A mark that begins thoughts
    counts only before any other text: an answer may write about such marks.
    """

    def __init__(self, end: str | None = None) -> None:
        self._end, self._buffer, self._begun = end, "", False

    def feed(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield parts of the answer so far, each with whether it is a thought."""
        self._buffer += text
        while part := self._next():
            yield part

    def rest(self) -> Iterator[tuple[str, bool]]:
        """Yield what a mark could have continued, at the end of the answer."""
        if self._buffer:
            yield self._buffer, self._end is not None
            self._buffer = ""

    def _next(self) -> tuple[str, bool] | None:
        """Take the next part from the buffer; None if more text is needed."""
        if self._end is not None:
            before, mark, after = self._buffer.partition(self._end)
            if mark:
                self._end, self._buffer = None, after
                return before, True
            return self._take(_before_unfinished(self._buffer, self._end), True)

        if not self._begun:
            start = self._buffer.lstrip()
            for begin, end in THOUGHTS:
                if start.startswith(begin):
                    self._end, self._buffer = end, start.removeprefix(begin)
                    return "", True
            if not start or any(begin.startswith(start) for begin, _ in THOUGHTS):
                return None
            self._begun = True
        return self._take(len(self._buffer), False)

    def _take(self, length: int, is_thought: bool) -> tuple[str, bool] | None:
        part, self._buffer = self._buffer[:length], self._buffer[length:]
        return (part, is_thought) if part else None


def _before_unfinished(text: str, mark: str) -> int:
    """Return the length of the text before an unfinished mark at its end."""
    starts = range(max(0, len(text) - len(mark) + 1), len(text))
    return next((start for start in starts if mark.startswith(text[start:])), len(text))
