"""Saboteurs of a model from load to close, and of what stays after it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakSet

from core.errors import GenerationTimeout, ModelClosedError, PromptTooLongError
from core.options import GenerateConfig, LoadConfig
from core.types import ModelInfo, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.backend import Reference
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import LEDGER, Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream

_STAYS_SECONDS = 5.0  # longer than the check waits; it shall not stay in the tests for ever


@saboteur("closes-once", "a second close() raises")
class ClosesOnce(ReferenceModel):
    def close(self) -> None:
        self.check_open()
        super().close()


@saboteur("tokenizer-outlives-close", "encode() of a closed model answers")
class TokenizerOutlivesClose(ReferenceModel):
    def encode(self, text: str) -> list[int]:
        return vocabulary.encode(text)


@saboteur("with-without-close", "`with` leaves the model open")
class WithWithoutClose(ReferenceModel):
    def __exit__(self, *error: object) -> None:
        """Leaves the model open."""


@saboteur("streams-outlive-model", "a stream works on with the model closed under it")
class StreamsOutliveModel(Engine):
    def check(self, row: Generation) -> None:
        row.clock.check()


@saboteur("untyped-closed-stream", "a stream whose model was closed fails in its internals")
class UntypedClosedStream(Engine):
    def check(self, row: Generation) -> None:
        try:
            super().check(row)
        except ModelClosedError as error:
            raise AttributeError("'NoneType' object has no attribute 'forward'") from error


@saboteur(
    "shared-weights-file",
    "models of the same files read from one handle, and the first close() closes it",
)
class SharedWeightsFile(ReferenceModel):
    _unread: ClassVar[WeakSet[SharedWeightsFile]] = WeakSet()
    _orphaned = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._unread.add(self)

    @property
    def info(self) -> ModelInfo:
        self._unread.discard(self)
        return super().info

    def check_open(self) -> None:
        super().check_open()
        if self._orphaned:
            raise OSError("[Errno 9] Bad file descriptor")
        self._unread.discard(self)

    def release(self) -> None:
        super().release()
        for model in self._unread:
            model._orphaned = True
        self._unread.clear()


@saboteur("keeps-memory", "close() frees nothing")
class KeepsMemory(ReferenceModel):
    def release(self) -> None:
        """Frees nothing."""


@saboteur("leaves-thread", "a thread of the model never ends")
class LeavesThread(ReferenceModel):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pause = threading.Event()
        name = "reference-monitor"
        threading.Thread(target=pause.wait, args=(_STAYS_SECONDS,), name=name, daemon=True).start()


@saboteur("progress-bar", "loading shows a progress bar on stdout")
class ProgressBar(Reference):
    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        sys.stdout.write("\r")
        return super().load_model(path, config)


@saboteur("native-print", "a native library prints to stdout")
class NativePrint(ReferenceModel):
    def release(self) -> None:
        os.write(1, b"\r")
        super().release()


@saboteur("closed-where-loaded", "only the thread that loaded a model can close it")
class ClosedWhereLoaded(ReferenceModel):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._thread = threading.current_thread()

    def close(self) -> None:
        if threading.current_thread() != self._thread:
            raise RuntimeError("this handle belongs to another thread")
        super().close()


_WATCHES_SECONDS = 60.0  # longer than the check takes on a slow machine
_LOOKS_SECONDS = 0.2
_WEIGHTS = 16 << 20  # bytes: they show in the memory of the process


@saboteur("registry-of-streams", "streams that were closed are kept in a list, for statistics")
class RegistryOfStreams(ReferenceStream):
    _all: ClassVar[deque[ReferenceStream]] = deque(maxlen=1000)

    def close(self) -> None:
        super().close()
        self._all.append(self)


@saboteur("timed-out-context-kept", "the context of a stream that ran out of time is not freed")
class TimedOutContextKept(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        try:
            yield from super().generate(row, meter)
        except GenerationTimeout:
            LEDGER.add(1 << 12)
            raise


@saboteur(
    "watchdog-for-each-timeout",
    "a thread that waits for a stream's timeout stays when the stream has ended",
)
class WatchdogForEachTimeout(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        if self.config.timeout is not None and self.config.timeout < 1.0:
            threading.Thread(target=self._watch, args=(self.engine,), daemon=True).start()
        yield from super().generate(row, meter)

    @staticmethod
    def _watch(engine: Engine) -> None:
        with suppress(ModelClosedError):
            for _ in range(round(_WATCHES_SECONDS / _LOOKS_SECONDS)):
                time.sleep(_LOOKS_SECONDS)
                engine.check_open()


@saboteur("left-iterator-keeps-slot", "a batch_stream that is not read to its end keeps its slot")
class LeftIteratorKeepsSlot(ReferenceModel):
    _made: ClassVar[deque[Iterator[tuple[int, Token]]]] = deque(maxlen=100)

    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        stream = super()._streamed(prompts, config)
        self._made.append(stream)
        return Passing(stream)


class Passing(Iterator[tuple[int, Token]]):
    """An iterator around another, which it does not end."""

    def __init__(self, stream: Iterator[tuple[int, Token]]) -> None:
        self._stream = stream

    def __next__(self) -> tuple[int, Token]:
        return next(self._stream)


@saboteur("descriptor-for-each-failure", "a prompt that is too long leaves a file open")
class DescriptorForEachFailure(Engine):
    _open: ClassVar[deque[int]] = deque()

    def check_length(self, length: int) -> None:
        try:
            super().check_length(length)
        except PromptTooLongError:
            self._open.append(os.open(os.devnull, os.O_RDONLY))
            while len(self._open) > 200:  # it shall not fill the tests' process
                os.close(self._open.popleft())
            raise


@saboteur("closed-models-kept", "models that were closed are kept in a list")
class ClosedModelsKept(ReferenceModel):
    _all: ClassVar[deque[ReferenceModel]] = deque(maxlen=1000)

    def release(self) -> None:
        self._all.append(self)
        super().release()


@saboteur(
    "weights-until-dropped",
    "the weights of a closed model are freed when the last reference to it is gone",
)
class WeightsUntilDropped(ReferenceModel):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._weights = b"\1" * _WEIGHTS
