"""Saboteurs that do not end well, and that do what nobody asked for meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, ClassVar
from weakref import WeakSet

from core.errors import ModelClosedError
from core.options import LoadConfig
from core.types import ModelInfo
from core_conformance.reference import vocabulary
from core_conformance.reference.backend import Reference
from core_conformance.reference.engine import Engine
from core_conformance.reference.generation import Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.saboteur import saboteur

_STAYS_SECONDS = 5.0  # longer than the check waits; it shall not stay in the tests for ever


@saboteur("closes-once", "a second close() raises", kills={"lifecycle.close-twice"})
class ClosesOnce(ReferenceModel):
    """Frees a handle that is not there any more."""

    def close(self) -> None:
        """Not idempotent."""
        self.check_open()
        super().close()


@saboteur(
    "tokenizer-outlives-close",
    "encode() of a closed model answers",
    kills={"lifecycle.use-after-close"},
)
class TokenizerOutlivesClose(ReferenceModel):
    """One method forgot to look."""

    def encode(self, text: str) -> list[int]:
        """Without asking whether the model is open."""
        return vocabulary.encode(text)


@saboteur("with-without-close", "`with` leaves the model open", kills={"lifecycle.context-manager"})
class WithWithoutClose(ReferenceModel):
    """There is an __exit__, and it does nothing."""

    def __exit__(self, *error: object) -> None:
        """Nothing."""


@saboteur(
    "streams-outlive-model",
    "a stream works on with the model closed under it",
    kills={"lifecycle.open-stream"},
)
class StreamsOutliveModel(Engine):
    """Looks at the clock only."""

    def check(self, row: Generation) -> None:
        """Not whether the model is open."""
        row.clock.check()


@saboteur(
    "untyped-closed-stream",
    "a stream whose model was closed fails in its internals",
    kills={"lifecycle.open-stream"},
)
class UntypedClosedStream(Engine):
    """What it works with is gone."""

    def check(self, row: Generation) -> None:
        """Raises AttributeError, as None.forward does."""
        try:
            super().check(row)
        except ModelClosedError as error:
            raise AttributeError("'NoneType' object has no attribute 'forward'") from error


@saboteur(
    "shared-weights-file",
    "models of the same files read from one handle, and the first close() closes it",
    kills={"lifecycle.other-models"},
)
class SharedWeightsFile(ReferenceModel):
    """Who has read the weights before does not notice."""

    _unread: ClassVar[WeakSet[SharedWeightsFile]] = WeakSet()
    _orphaned = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unread.add(self)

    @property
    def info(self) -> ModelInfo:
        """Reads the weights."""
        self._unread.discard(self)
        return super().info

    def check_open(self) -> None:
        """Whatever is done, the weights are read first."""
        super().check_open()
        if self._orphaned:
            raise OSError("[Errno 9] Bad file descriptor")
        self._unread.discard(self)

    def release(self) -> None:
        """Close the handle."""
        super().release()
        for model in self._unread:
            model._orphaned = True
        self._unread.clear()


@saboteur("keeps-memory", "close() frees nothing", kills={"lifecycle.memory"})
class KeepsMemory(ReferenceModel):
    """Leaves it to the garbage collector, which does not know of it."""

    def release(self) -> None:
        """Nothing."""


@saboteur("leaves-thread", "a thread of the model never ends", kills={"lifecycle.threads"})
class LeavesThread(ReferenceModel):
    """A monitor that is not told to stop."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pause = threading.Event()
        name = "reference-monitor"
        threading.Thread(target=pause.wait, args=(_STAYS_SECONDS,), name=name, daemon=True).start()


@saboteur("progress-bar", "loading shows a progress bar on stdout", kills={"lifecycle.silence"})
class ProgressBar(Reference):
    """In Python."""

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        """Back to the beginning of the line, so that nothing is seen of it in the end."""
        sys.stdout.write("\r")
        return super().load_model(path, config)


@saboteur("native-print", "a native library prints to stdout", kills={"lifecycle.silence"})
class NativePrint(ReferenceModel):
    """Below Python."""

    def release(self) -> None:
        """Where sys.stdout does not matter."""
        os.write(1, b"\r")
        super().release()


@saboteur(
    "closed-where-loaded",
    "only the thread that loaded a model can close it",
    kills={"lifecycle.any-thread"},
)
class ClosedWhereLoaded(ReferenceModel):
    """A library with thread-local handles."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._thread = threading.current_thread()

    def close(self) -> None:
        """Raises elsewhere."""
        if threading.current_thread() != self._thread:
            raise RuntimeError("this handle belongs to another thread")
        super().close()
