"""Saboteurs that close well when nothing runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

from core.errors import ModelClosedError
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream, SubmittedStream

_FOR_EVER = 15.0  # seconds: longer than the check waits; it shall not stay in the tests for ever
_UNREAD = 12  # tokens


class Bounded(SubmittedStream):
    """A request whose worker waits for its reader, who may be gone."""

    made: ClassVar[WeakKeyDictionary[Engine, WeakSet[Bounded]]] = WeakKeyDictionary()

    def __init__(self, *arguments: Any) -> None:
        self._read = threading.Event()
        super().__init__(*arguments)
        self.made.setdefault(self._stream.engine, WeakSet()).add(self)

    def next_token(self) -> Token:
        self._read.set()
        return super().next_token()

    def close(self) -> None:
        self._read.set()
        super().close()

    def _work(self, queue: Any) -> None:
        try:
            self._fill(queue)
        except Exception as error:  # noqa: BLE001 - as in the sound one
            queue.put(error)

    def _fill(self, queue: Any) -> None:
        for count, token in enumerate(self._stream):
            if count >= _UNREAD:
                self._read.wait(_FOR_EVER)
            queue.put(token)
        queue.put(StopIteration())

    def wait(self) -> None:
        self._worker.join()


@saboteur(
    "close-forgets-the-line", "a batch that waits in line does not hear that its model was closed"
)
class CloseForgetsTheLine(Batch):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._hears = time.monotonic() + _FOR_EVER

    def _check(self) -> None:
        self._clock.check()
        if time.monotonic() > self._hears:
            self._engine.check_open()


@saboteur(
    "close-waits-for-the-unread",
    "close() waits for submitted requests, whose workers wait for a reader",
)
class CloseWaitsForTheUnread(ReferenceModel):
    submitted_class = Bounded

    def release(self) -> None:
        for stream in list(Bounded.made.get(self.engine, ())):
            stream.wait()
        super().release()


@saboteur(
    "submitted-hangs-at-close", "who reads a submitted request of a closed model waits for ever"
)
class SubmittedHangsAtClose(Bounded):
    def _fill(self, queue: Any) -> None:
        with suppress(ModelClosedError):
            super()._fill(queue)


@saboteur("cut-off-says-stop", "a stream that is cut off by close() ends as if it were complete")
class CutOffSaysStop(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        try:
            yield from super().generate(row, meter)
        except ModelClosedError:
            row.reason = "stop"


@saboteur(
    "batch-stream-ends-at-close",
    "a batch_stream whose model is closed ends as if all rows were complete",
)
class BatchStreamEndsAtClose(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        self.check_open()
        try:
            yield from super()._streamed(prompts, config)
        except ModelClosedError:
            return


@saboteur(
    "classify-iter-ends-at-close",
    "a classify_iter whose model is closed gives no more results, as if there were no more prompts",
)
class ClassifyIterEndsAtClose(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        self.check_open()
        try:
            yield from super()._classified(prompts, config)
        except ModelClosedError:
            return


@saboteur("frees-twice", "two threads that close a model at once free it twice")
class FreesTwice(ReferenceModel):
    _freed = False

    def close(self) -> None:
        if self._closed:
            return
        time.sleep(0.05)
        self._closed = True
        self.release()

    def release(self) -> None:
        if self._freed:
            raise RuntimeError("free(): double free detected")
        self._freed = True
        super().release()


@saboteur(
    "classify-returns-what-it-has", "a classify whose model is closed returns the rows that it has"
)
class ClassifyReturnsWhatItHas(Classifier):
    def _results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        done: list[ClassifyResult] = []
        for start in range(0, len(prompts), 8):
            try:
                self._engine.check_open()
            except ModelClosedError:
                return done
            done += super()._results(prompts[start : start + 8])
            # Long compared with the delay of close() on a busy machine.
            time.sleep(0.1 if len(prompts) > 8 else 0)
        return done
