"""Ctrl-C and SIGTERM while a model runs: request a stop, and keep finished results."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


class Stop:
    """A request to stop, and its signal."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._signal = 0

    def ask(self, number: int) -> None:
        """Record the signal."""
        self._signal = number
        self.asked.set()

    def raise_asked(self) -> None:
        """Raise KeyboardInterrupt or `Terminated` if the user asked to stop."""
        if self.asked.is_set():
            raise Terminated if self._signal == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def noted(stop: Stop) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM ask to ``stop`` instead of raising; a second one raises."""
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    in_main = threading.current_thread() is threading.main_thread()
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: terminate}
    mine = [number for number in _SIGNALS if in_main and usual[number] is ours[number]]

    def ask_to_stop(number: int, _frame: object) -> None:
        stop.ask(number)
        for caught in mine:
            signal.signal(caught, usual[caught])

    for number in mine:  # other handlers stay: ignored signals, or those of a host program
        signal.signal(number, ask_to_stop)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, usual[number])


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
