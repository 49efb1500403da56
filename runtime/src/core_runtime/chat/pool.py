"""A few processes that render chat templates, shared by all models, and ended with the last one.

No lock is held during a rendering, so a signal handler that interrupts it may render, too.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from queue import Empty, SimpleQueue

from core.errors import ChatTemplateError
from core.kit.base import Check
from core.system.child_process import started
from core_runtime.chat.frames import NO_MEMORY
from core_runtime.chat.process import ProcessEnded, TemplateProcess

_MOST = 4  # processes at one time
_MOST_IDLE = 2  # idle processes that are kept for later
_TICK_SECONDS = 0.02
_PATIENCE_SECONDS = 60.0  # a longer wait means that the caller itself holds all of them


class TemplateProcesses:
    """A few processes that render. Safe to use from several threads.

    A request starts a process if none is idle; the processes end with this object.
    """

    def __init__(self) -> None:
        self._own()

    def ask(self, request: bytes, check: Check) -> tuple[bytes, str]:
        """Return the kind and the text of an answer.

        Raises `ChatTemplateError` without an answer, `ProcessTooSlow`, and like ``check``.
        """
        check()  # before, not within: an abandoned request kills its process
        process = self._taken(check)
        used = process.answered

        with suppress(ProcessEnded):
            kind, text = self._answered(process, request, check)
            if kind != NO_MEMORY or not used:
                return kind, text

        # It may have been killed while idle, or its memory may be full of other templates.
        try:
            return self._answered(self._started(), request, check)
        except ProcessEnded as error:
            raise ChatTemplateError(
                f"The process that rendered the model's chat template {error}."
            ) from None

    def _answered(
        self, process: TemplateProcess, request: bytes, check: Check
    ) -> tuple[bytes, str]:
        """Return the answer of this process, which is then idle, or has ended."""
        keep = False
        try:
            kind, text = process.ask(request, check)
            keep = kind != NO_MEMORY and self._idle.qsize() < _MOST_IDLE
        finally:
            if not keep:
                self._all.discard(process)
                process.end()
        if keep:
            self._idle.put(process)
        return kind, text

    def _taken(self, check: Check) -> TemplateProcess:
        """Return an idle process, or a new one, or wait for one to become idle."""
        if os.getpid() != self._pid:
            self._own()
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with suppress(Empty):
                return self._idle.get_nowait()
            if len(self._all) < _MOST:
                return self._started()
            check()
            with suppress(Empty):
                return self._idle.get(timeout=_TICK_SECONDS)
            if time.monotonic() > end:
                raise ChatTemplateError("Every process that renders chat templates is busy.")

    def _started(self) -> TemplateProcess:
        process = started(TemplateProcess)
        self._all.add(process)
        return process

    def _own(self) -> None:
        """Start without processes: a fork must not use its parent's."""
        self._idle: SimpleQueue[TemplateProcess] = SimpleQueue()
        self._all: weakref.WeakSet[TemplateProcess] = weakref.WeakSet()
        self._pid = os.getpid()


_shared: weakref.WeakValueDictionary[str, TemplateProcesses] = weakref.WeakValueDictionary()


def shared_processes() -> TemplateProcesses:
    """Return the processes of this program; they end with the last reference."""
    return _shared.setdefault("", TemplateProcesses())
