"""Saboteurs that are right as long as they are asked one thing at a time, or not by submit."""

from __future__ import annotations

import dataclasses
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from queue import Empty
from typing import Any, ClassVar, Unpack
from weakref import WeakKeyDictionary

from core.errors import ModelBusyError
from core.options import ClassifyOptions, GenerateConfig
from core.protocols import TokenStream
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation, Slots
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import Record, ReferenceStream, SubmittedStream

_FOR_EVER = 5.0  # seconds
_open: list[SubmittedStream] = []


class Attentive(Engine):
    """An engine that knows which rows run, those of one call together."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.live: list[Sequence[Generation]] = []

    @contextmanager
    def running(self, rows: Sequence[Generation]) -> Iterator[None]:
        self.live.append(rows)
        try:
            with super().running(rows):
                yield
        finally:
            self.live.remove(rows)


class OneCache(Attentive):
    """Shares one cache: what one stream has read, the others have read too."""

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        if len(rows) == 1 and len(self.live) > 1:
            return super().forward([self.live[-1][-1].context])
        return super().forward(rows)


class Waiting(SubmittedStream):
    """A request that is done when submit() returns, so that submitted ones do not meet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._worker.join()


@saboteur("one-cache-for-streams", "streams that run at the same time share one cache")
class OneCacheForStreams(ReferenceModel):
    engine_class = OneCache
    submitted_class = Waiting


@saboteur("busy-for-all", "a thread that would have to wait its turn gets ModelBusyError")
class BusyForAll(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = NoQueue(self.slots.count)


class NoQueue(Slots):
    """Slots that serve the first to come and refuse all others."""

    def _refuse(self, me: int) -> None:
        if len(self._holders) >= self.count:
            raise ModelBusyError("The model is busy. Try again later.")


@saboteur("waits-crosswise", "threads that each hold a stream wait for one another's to end")
class WaitsCrosswise(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = SeesOnlyItself(self.slots.count)


class SeesOnlyItself(Slots):
    """Slots that refuse a thread that holds all of them, and no other."""

    def _refuse(self, me: int) -> None:
        if {*self._holders} == {me}:
            super()._refuse(me)


@saboteur(
    "untyped-busy", "a second stream of one thread fails with an error that is not one of core's"
)
class UntypedBusy(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Untyped(self.slots.count)


class Untyped(Slots):
    """Slots that refuse with an error of their own."""

    def _refuse(self, me: int) -> None:
        try:
            super()._refuse(me)
        except ModelBusyError:
            raise RuntimeError("cannot acquire a lock that this thread holds") from None


@saboteur(
    "waits-for-itself", "a submitted request waits for a slot that its reader's own stream holds"
)
class WaitsForItself(SubmittedStream):
    def _wait(self) -> Token | BaseException:
        try:
            return self._queue.get(timeout=_FOR_EVER)
        except Empty:
            raise RuntimeError("this thread waits for ever") from None


@saboteur("slots-for-show", "parallel_slots is accepted, and there is one slot all the same")
class SlotsForShow(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Slots(1)


@saboteur("slots-up-to-four", "parallel_slots beyond four are accepted, and there are four")
class SlotsUpToFour(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Slots(min(4, self.slots.count))


@saboteur(
    "one-result-buffer", "calls of classify() of the same size share one buffer for their results"
)
class OneResultBuffer(ReferenceModel):
    _owner: threading.Thread | None = None
    _left: tuple[object, list[ClassifyResult]] = (None, [])

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        results = super().classify(prompts, config, **options)
        size = (sorted(prompts), config, options)
        me, before = threading.current_thread(), self._owner
        if before is not me and self._left[0] == size:
            return self._left[1]
        self._owner, self._left = me, (size, results)
        return results


class ResetsRows(Classifier):
    """A classifier that works in the cache of the streams."""

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        engine: Any = self._engine
        for row in chain.from_iterable(engine.live):
            row.context.append(0)
        return super().read(prompts)


@saboteur("classify-in-the-streams-cache", "classify() writes into the caches of streams that run")
class ClassifyInTheStreamsCache(ReferenceModel):
    engine_class = Attentive
    classifier_class = ResetsRows


@saboteur(
    "first-come-first-read",
    "who reads first gets the tokens of the request that was submitted first",
)
class FirstComeFirstRead(SubmittedStream):
    _line: ClassVar[WeakKeyDictionary[Engine, list[FirstComeFirstRead]]] = WeakKeyDictionary()

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        super().__init__(stream, record)
        self._own = self._queue
        self._source: FirstComeFirstRead | None = None
        self._line.setdefault(stream.engine, []).append(self)

    def next_token(self) -> Token:
        if self._source is None:
            self._source = self._line[self._stream.engine].pop(0)
            self._queue = self._source._own
        return super().next_token()

    def close(self) -> None:
        if self._source is None and self in self._line[self._stream.engine]:
            self._line[self._stream.engine].remove(self)
            self._source = self
        super().close()


@saboteur("submit-ignores-max-tokens", "submit generates one token less than max_tokens")
class SubmitIgnoresMaxTokens(ReferenceModel):
    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        request = config or GenerateConfig()
        less = max(1, request.max_tokens - 1)
        return super().submit(prompt, dataclasses.replace(request, max_tokens=less))


@saboteur("close-closes-all", "closing one submitted request closes all")
class CloseClosesAll(SubmittedStream):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        _open.append(self)

    def close(self) -> None:
        streams = [*_open]
        _open.clear()
        for stream in streams:
            SubmittedStream.close(stream)
