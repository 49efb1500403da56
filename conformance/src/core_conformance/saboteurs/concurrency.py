"""Saboteurs that are right as long as they are asked one thing at a time."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar, Unpack
from weakref import WeakKeyDictionary

from core.errors import ModelBusyError
from core.options import ClassifyOptions, GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.generation import Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.slots import Slots
from core_conformance.reference.stream import Record, ReferenceStream
from core_conformance.reference.submitted import SubmittedStream
from core_conformance.saboteur import saboteur


class Attentive(Engine):
    """Knows which rows run, those of one call together."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.live: list[Sequence[Generation]] = []

    @contextmanager
    def running(self, rows: Sequence[Generation]) -> Iterator[None]:
        """As ever."""
        self.live.append(rows)
        try:
            with super().running(rows):
                yield
        finally:
            self.live.remove(rows)


class OneCache(Attentive):
    """What one reads, the others have read."""

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        """The logits behind whatever was written last."""
        if len(rows) == 1 and len(self.live) > 1:
            return super().forward([self.live[-1][-1].context])
        return super().forward(rows)


class Waiting(SubmittedStream):
    """Done when submit() returns, so that these requests do not meet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._worker.join()


@saboteur(
    "one-cache-for-streams",
    "streams that run at the same time share one cache",
    kills={"concurrency.streams", "concurrency.parallel-slots"},
)
class OneCacheForStreams(ReferenceModel):
    """Right for one stream."""

    engine_class = OneCache
    submitted_class = Waiting


@saboteur(
    "busy-for-all",
    "a thread that would have to wait its turn gets ModelBusyError",
    kills={"concurrency.waiting-turn"},
)
class BusyForAll(Engine):
    """No queue."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = NoQueue(self.slots.count)


class NoQueue(Slots):
    """First come, only served."""

    def _refuse(self, me: int) -> None:
        if len(self._holders) >= self.count:
            raise ModelBusyError("The model is busy. Try again later.")


@saboteur(
    "untyped-busy",
    "a second stream of one thread fails with an error that is none of core's",
    kills={"concurrency.second-stream"},
)
class UntypedBusy(Engine):
    """A lock that is not reentrant."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Untyped(self.slots.count)


class Untyped(Slots):
    """Says it in its own words."""

    def _refuse(self, me: int) -> None:
        try:
            super()._refuse(me)
        except ModelBusyError:
            raise RuntimeError("cannot acquire a lock that this thread holds") from None


@saboteur(
    "slots-for-show",
    "parallel_slots is accepted, and there is one slot all the same",
    kills={"concurrency.parallel-slots"},
)
class SlotsForShow(Engine):
    """One at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Slots(1)


@saboteur(
    "one-result-buffer",
    "calls of classify() of the same size share one buffer for their results",
    kills={"concurrency.classify"},
)
class OneResultBuffer(ReferenceModel):
    """Another thread finds there what the last one has left."""

    _owner: threading.Thread | None = None
    _left: tuple[object, list[ClassifyResult]] = (None, [])

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Not always its own."""
        results = super().classify(prompts, config, **options)
        size = (sorted(prompts), config, options)
        me, before = threading.current_thread(), self._owner
        if before is not me and self._left[0] == size:
            return self._left[1]
        self._owner, self._left = me, (size, results)
        return results


class ResetsRows(Classifier):
    """Works in the cache of the streams."""

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """Leaves a token of its own in there."""
        engine: Any = self._engine
        for row in chain.from_iterable(engine.live):
            row.context.append(0)
        return super().read(prompts)


@saboteur(
    "classify-in-the-streams-cache",
    "classify() writes into the caches of streams that run",
    kills={"concurrency.classify-while-streaming"},
)
class ClassifyInTheStreamsCache(ReferenceModel):
    """One cache for everything."""

    engine_class = Attentive
    classifier_class = ResetsRows


@saboteur(
    "first-come-first-read",
    "who reads first gets the tokens of the request that was submitted first",
    kills={"concurrency.submit", "submitting.equals-generate"},
)
class FirstComeFirstRead(SubmittedStream):
    """One line of results for all readers."""

    _line: ClassVar[WeakKeyDictionary[Engine, list[FirstComeFirstRead]]] = WeakKeyDictionary()

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        super().__init__(stream, record)
        self._own = self._queue
        self._source: FirstComeFirstRead | None = None
        self._line.setdefault(stream.engine, []).append(self)

    def __next__(self) -> Token:
        if self._source is None:
            self._source = self._line[self._stream.engine].pop(0)
            self._queue = self._source._own
        return super().__next__()

    def close(self) -> None:
        """It reads no more."""
        if self._source is None and self in self._line[self._stream.engine]:
            self._line[self._stream.engine].remove(self)
            self._source = self
        super().close()
