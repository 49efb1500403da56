"""Turns: as many requests run side by side as there are slots, the others wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.errors import ModelBusyError

_POLL_SECONDS = 0.01  # how often one that waits looks whether it still wants its turn


class Slots:
    """Each slot is held for a thread. Nobody waits for what that thread itself has to finish."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = threading.Condition()
        self._holders: list[int] = []
        self._waiting: set[int] = set()

    @contextmanager
    def taken(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a slot. ``check`` is called while it waits, to raise when it is not wanted.

        Raises `ModelBusyError` when all slots are held for threads that cannot go on before.
        """
        me = threading.get_ident()
        with self._free:
            self._acquire(me, check)
        try:
            yield
        finally:  # perhaps in another thread, where a stream was closed
            with self._free:
                self._holders.remove(me)
                self._free.notify_all()

    def refuse_waiting_for_oneself(self) -> None:
        """Raise `ModelBusyError` when every slot is held for this very thread."""
        with self._free:
            self._refuse(threading.get_ident())

    def _acquire(self, me: int, check: Callable[[], None]) -> None:
        self._waiting.add(me)
        try:
            while len(self._holders) >= self.count:
                self._refuse(me)
                check()
                self._free.wait(_POLL_SECONDS)
            self._holders.append(me)
        finally:
            self._waiting.discard(me)

    def _refuse(self, me: int) -> None:
        stuck = self._waiting | {me}
        if len(self._holders) >= self.count and stuck.issuperset(self._holders):
            raise ModelBusyError(
                f"All {self.count} slots of the model are held by open streams of the threads "
                "that wait for one. Finish or close a stream, or load with more parallel_slots."
            )
