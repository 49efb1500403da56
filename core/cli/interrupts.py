"""Ctrl-C while a model works: it is asked to stop, and what is done is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_sets(cancel: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set ``cancel`` instead of raising; a second one raises as usual."""
    usual = signal.getsignal(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or usual is not signal.default_int_handler:
        yield  # not ours to change: another thread, ignored, or the host program's own handler
        return

    def ask_to_stop(_signal: int, _frame: object) -> None:
        cancel.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
