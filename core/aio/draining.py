"""The calls of a model that are under way, so that it can be closed after the last of them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from core.aio.calls import in_thread
from core.errors import ModelClosedError


class Running:
    """The number of calls under way, in any event loop; after `drain`, new ones are refused."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._draining = False

    def check(self) -> None:
        """Raise `core.ModelClosedError` if the model is draining."""
        if self._draining:
            raise ModelClosedError(
                "The model is closing: it completes running requests and takes no new ones. Use "
                "another model."
            )

    def begin(self) -> None:
        """Count a call. Raises `core.ModelClosedError` if the model is draining."""
        with self._changed:
            self.check()
            self._count += 1

    def end(self) -> None:
        """Count the end of a call."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call while it is awaited. Raises like `begin`."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def call_of(self, stream: object) -> Callable[[], object]:
        """Count a call until the result is called or the stream dropped. Raises like `begin`."""
        self.begin()
        end = weakref.finalize(stream, self.end)
        end.atexit = False
        return end

    async def drain(self) -> None:
        """Refuse new calls, and wait for those under way."""
        given_up = False

        def wait() -> None:
            with self._changed:
                self._changed.wait_for(lambda: given_up or not self._count)

        def stop() -> None:
            nonlocal given_up
            with self._changed:
                given_up = True
                self._changed.notify_all()

        with self._changed:
            self._draining = True
        await in_thread(wait, stop)
