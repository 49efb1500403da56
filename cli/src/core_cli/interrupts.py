"""Ctrl-C and SIGTERM while a model runs: request a stop, and keep finished results."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


class Stop:
    """A request to stop, and its signal; ``answer`` says at once what it will do."""

    def __init__(self, answer: Callable[[], None] = lambda: None) -> None:
        self.asked = threading.Event()
        self._signal, self._answer = 0, answer

    def ask(self, number: int) -> None:
        """Record the signal, and answer it."""
        self._signal = number
        self.asked.set()
        _answered(self._answer)

    def raise_asked(self) -> None:
        """Raise KeyboardInterrupt or `Terminated` if the user asked to stop."""
        if self.asked.is_set():
            raise Terminated if self._signal == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def noted(stop: Stop) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM ask to ``stop`` instead of raising; a second one raises."""
    with _first_signal(stop.ask):
        yield


@contextmanager
def announced(answer: Callable[[], None]) -> Iterator[None]:
    """Call ``answer`` at once at the first Ctrl-C or SIGTERM, before it raises as usual."""

    def raise_after(number: int) -> None:
        _answered(answer)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    with _first_signal(raise_after):
        yield


@contextmanager
def _first_signal(take: Callable[[int], None]) -> Iterator[None]:
    """Hand the first Ctrl-C or SIGTERM to a function; a second one does as before."""
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    in_main = threading.current_thread() is threading.main_thread()
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: terminate}
    mine = [number for number in _SIGNALS if in_main and usual[number] is ours[number]]

    def restore() -> None:
        for number in mine:
            signal.signal(number, usual[number])

    def taken(number: int, _frame: object) -> None:
        restore()
        take(number)

    for number in mine:  # other handlers stay: ignored signals, or those of a host program
        signal.signal(number, taken)
    try:
        yield
    finally:
        restore()


def _answered(answer: Callable[[], None]) -> None:
    # The signal may have come while the main thread wrote to the same stream.
    with contextlib.suppress(RuntimeError):
        answer()


@contextmanager
def terminating() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` in the main thread, unless it has another handler."""
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """Raise `Terminated`: what SIGTERM does within `terminating`."""
    raise Terminated
