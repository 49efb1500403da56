"""Saboteurs that end badly, or have unrequested side effects."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, ClassVar
from weakref import WeakSet

from core.errors import ModelClosedError
from core.options import LoadConfig
from core.types import ModelInfo
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.backend import Reference
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.optional import ReferenceModel

_STAYS_SECONDS = 5.0  # longer than the check waits; it shall not stay in the tests for ever


@saboteur("closes-once", "a second close() raises")
class ClosesOnce(ReferenceModel):
    """Frees, at a second close(), a handle that is not there any more."""

    def close(self) -> None:
        """Closes the model, but raises when it is closed."""
        self.check_open()
        super().close()


@saboteur("tokenizer-outlives-close", "encode() of a closed model answers")
class TokenizerOutlivesClose(ReferenceModel):
    """Has one method that forgets to look whether the model is open."""

    def encode(self, text: str) -> list[int]:
        """Encodes a text without asking whether the model is open."""
        return vocabulary.encode(text)


@saboteur("with-without-close", "`with` leaves the model open")
class WithWithoutClose(ReferenceModel):
    """Has an __exit__ that does nothing."""

    def __exit__(self, *error: object) -> None:
        """Leaves the model open."""


@saboteur("streams-outlive-model", "a stream works on with the model closed under it")
class StreamsOutliveModel(Engine):
    """Looks between tokens at the clock alone."""

    def check(self, row: Generation) -> None:
        """Looks at cancel and timeout, and not whether the model is open."""
        row.clock.check()


@saboteur("untyped-closed-stream", "a stream whose model was closed fails in its internals")
class UntypedClosedStream(Engine):
    """Works on, with a closed model, on what is gone."""

    def check(self, row: Generation) -> None:
        """Raises AttributeError for a closed model, as None.forward does."""
        try:
            super().check(row)
        except ModelClosedError as error:
            raise AttributeError("'NoneType' object has no attribute 'forward'") from error


@saboteur(
    "shared-weights-file",
    "models of the same files read from one handle, and the first close() closes it",
)
class SharedWeightsFile(ReferenceModel):
    """Shares one file handle; only a model that has read its weights before works on."""

    _unread: ClassVar[WeakSet[SharedWeightsFile]] = WeakSet()
    _orphaned = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unread.add(self)

    @property
    def info(self) -> ModelInfo:
        """The facts of the model, for which the weights are read."""
        self._unread.discard(self)
        return super().info

    def check_open(self) -> None:
        """Reads the weights, as every operation does first; fails where the handle is closed."""
        super().check_open()
        if self._orphaned:
            raise OSError("[Errno 9] Bad file descriptor")
        self._unread.discard(self)

    def release(self) -> None:
        """Closes the handle, also for the models that have not read their weights."""
        super().release()
        for model in self._unread:
            model._orphaned = True
        self._unread.clear()


@saboteur("keeps-memory", "close() frees nothing")
class KeepsMemory(ReferenceModel):
    """Leaves memory to the garbage collector, which does not know of it."""

    def release(self) -> None:
        """Frees nothing."""


@saboteur("leaves-thread", "a thread of the model never ends")
class LeavesThread(ReferenceModel):
    """Starts a monitor that is never told to stop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pause = threading.Event()
        name = "reference-monitor"
        threading.Thread(target=pause.wait, args=(_STAYS_SECONDS,), name=name, daemon=True).start()


@saboteur("progress-bar", "loading shows a progress bar on stdout")
class ProgressBar(Reference):
    """Writes to stdout in Python."""

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        """Loads a model after printing a carriage return on stdout, which shows nothing."""
        sys.stdout.write("\r")
        return super().load_model(path, config)


@saboteur("native-print", "a native library prints to stdout")
class NativePrint(ReferenceModel):
    """Writes to stdout below Python, as a native library does."""

    def release(self) -> None:
        """Writes to descriptor 1 itself, where sys.stdout does not matter."""
        os.write(1, b"\r")
        super().release()


@saboteur("closed-where-loaded", "only the thread that loaded a model can close it")
class ClosedWhereLoaded(ReferenceModel):
    """Works with a library whose handles belong to one thread."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._thread = threading.current_thread()

    def close(self) -> None:
        """Closes the model, but raises in any thread but the one that loaded it."""
        if threading.current_thread() != self._thread:
            raise RuntimeError("this handle belongs to another thread")
        super().close()
