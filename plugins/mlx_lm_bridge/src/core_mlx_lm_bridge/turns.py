"""Turns at a worker: it serves one stream at a time, the others wait in order of arrival."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from core.errors import ModelBusyError

_LOOK_SECONDS = 0.02  # interval at which waiting streams poll their cancel


class QueuePlace:
    """A stream's place in the queue: the thread that read it last, and its request's id."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.id: int | None = None


class Turns:
    """The queue of waiting streams. Its lock is reentrant: finalizers run anywhere, and `leave`."""

    def __init__(self) -> None:
        self._line: deque[QueuePlace] = deque()
        self._changed = threading.Condition(threading.RLock())

    def join(self, turn: QueuePlace, check: Callable[[], None]) -> None:
        """Wait until it is this place's turn.

        Raises the errors of ``check`` while it waits, and `ModelBusyError` if an earlier stream
        belongs to the same thread: it could not continue while this one waits.
        """
        turn.thread = threading.get_ident()
        with self._changed:
            self._line.append(turn)
        try:
            while not self._is_first(turn):
                check()
        except BaseException:
            self.leave(turn)
            raise

    def leave(self, turn: QueuePlace) -> None:
        """Leave the queue and make room for the next place. May be called twice."""
        with self._changed:
            if turn in self._line:
                self._line.remove(turn)
                self._changed.notify_all()

    def _is_first(self, turn: QueuePlace) -> bool:
        with self._changed:
            if any(other.thread == turn.thread for other in self._before(turn)):
                raise ModelBusyError(
                    "This thread has an open stream of the same model, and mlx-lm runs one at a "
                    "time. Read that stream to its end or close() it first, or read it in "
                    "another thread."
                )
            if self._line[0] is not turn:
                self._changed.wait(_LOOK_SECONDS)
            return self._line[0] is turn

    def _before(self, turn: QueuePlace) -> list[QueuePlace]:
        line = list(self._line)
        return line[: line.index(turn)]
