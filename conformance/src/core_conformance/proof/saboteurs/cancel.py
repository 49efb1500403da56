"""Saboteurs of cancel and timeout: heard late, by others, or with a loss."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from core.errors import GenerationCancelled, GenerationTimeout
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation, Slots
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream


@saboteur("cancel-after-the-first", "cancel is looked at after the first token only")
class CancelAfterTheFirst(Engine):
    def check(self, row: Generation) -> None:
        self.check_open()
        if row.drawn:
            row.clock.check()


@saboteur("deaf-while-decoding", "cancel is looked at in prefill only")
class DeafWhileDecoding(ReferenceStream):
    def _check(self, row: Generation) -> None:
        self.engine.check_open()


@saboteur("deaf-in-prefill", "cancel is not looked at while a prompt is read")
class DeafInPrefill(Engine):
    def prefill(self, row: Generation, meter: Meter) -> None:
        meter.prompt_tokens += len(row.prompt)
        with meter.prefilling():
            row.context.extend(row.prompt)


@saboteur("deaf-batch", "a batch that runs cannot be stopped")
class DeafBatch(Batch):
    def _wanted(self, active: list[int]) -> list[int]:
        return active


@saboteur("deaf-classify", "classify() does not look at cancel and timeout")
class DeafClassify(Classifier):
    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, config, meter)
        self._clock = type(self._clock)(GenerateConfig())


@saboteur("timeout-as-cancel", "a timeout is reported as a cancel")
class TimeoutAsCancel(Engine):
    def check(self, row: Generation) -> None:
        try:
            super().check(row)
        except GenerationTimeout:
            raise GenerationCancelled from None


@saboteur("cancel-by-presence", "a cancel counts as set as soon as there is one")
class CancelByPresence(ReferenceStream):
    def _check(self, row: Generation) -> None:
        if self.config.cancel:
            raise GenerationCancelled
        super()._check(row)


@saboteur(
    "half-read-prompt-kept",
    "a prompt whose reading was cancelled stays in the prompt cache, and is taken for complete",
)
class HalfReadPromptKept(ReferenceStream):
    _half_read: ClassVar[WeakKeyDictionary[Engine, Sequence[int]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        prompt = row.prompt
        if self._half_read.get(self.engine) == prompt:
            del self._half_read[self.engine]
            row.prompt = prompt[:1]
        try:
            yield from super().generate(row, meter)
        except GenerationCancelled:
            if not row.drawn:
                self._half_read[self.engine] = prompt
            raise


@saboteur("closed-stream-keeps-slot", "close() forgets the slot, where there is only one")
class ClosedStreamKeepsSlot(ReferenceStream):
    _held: ClassVar[list[Generator[Token, None, None]]] = []

    def close(self) -> None:
        if self.engine.slots.count > 1:
            super().close()
            return
        self._closed = True
        self._held.append(self._tokens)


_LOOKS_ON = 3.0  # seconds: longer than the check waits for it


@saboteur(
    "works-on-what-was-cancelled",
    "what a cancelled stream had drawn stays after its prompt, for the next one with this prompt",
)
class WorksOnWhatWasCancelled(ReferenceStream):
    _kept: ClassVar[WeakKeyDictionary[Engine, dict[Sequence[int], list[int]]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        prompt, contexts = row.prompt, self._kept.setdefault(self.engine, {})
        row.prompt = tuple(contexts.pop(prompt, prompt))
        try:
            yield from super().generate(row, meter)
        except GenerationCancelled:
            if row.drawn > 2:
                contexts[prompt] = list(row.context)
            raise


@saboteur(
    "cancelled-batch-keeps-slot", "a batch that is cancelled midway does not give its slot back"
)
class CancelledBatchKeepsSlot(Batch):
    def tokens(self) -> Iterator[tuple[int, Token]]:
        yield from super().tokens()
        cancelled = [row for row in self.errors if row in self.rows and self.rows[row].drawn]
        if any(isinstance(self.errors[row], GenerationCancelled) for row in cancelled):
            self._engine.slots._holders.append(-1)


@saboteur(
    "cancelled-classify-loses-rows",
    "a classify that is cancelled midway returns the rows that it has, and no others",
)
class CancelledClassifyLosesRows(Classifier):
    def _results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super()._results(prompts)
        done = [r for r in results if not isinstance(r.error, GenerationCancelled)]
        return done or results


@saboteur("cancel-ends-the-neighbours", "a cancelled stream ends the concurrent ones")
class CancelEndsTheNeighbours(ReferenceStream):
    _stopped: ClassVar[WeakKeyDictionary[Engine, int]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        before = self._stopped.get(self.engine, 0)
        try:
            for token in super().generate(row, meter):
                if self._stopped.get(self.engine, 0) > before:
                    row.reason = "stop"
                    return
                yield token
        except GenerationCancelled:
            if row.drawn and not self._closed:
                self._stopped[self.engine] = before + 1
            raise


@saboteur(
    "watcher-outlives-its-call", "a thread keeps polling the cancel of a stream that has ended"
)
class WatcherOutlivesItsCall(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        cancel = self.config.cancel
        if cancel is not None and not isinstance(cancel, threading.Event):
            threading.Thread(target=_watch, args=(cancel.is_set,), daemon=True).start()
        yield from super().generate(row, meter)


def _watch(is_set: Callable[[], bool]) -> None:
    end = time.monotonic() + _LOOKS_ON
    while time.monotonic() < end:
        is_set()
        time.sleep(0.05)


@saboteur(
    "batch-looks-until-the-first-token", "the rows of a batch are looked at until their first token"
)
class BatchLooksUntilTheFirstToken(Batch):
    def _wanted(self, active: list[int]) -> list[int]:
        begun = [row for row in active if self.rows[row].drawn > 1]
        return begun + super()._wanted([row for row in active if row not in begun])


@saboteur(
    "classify-looks-at-its-first-rows",
    "classify looks at cancel and timeout in its first micro-batch only",
)
class ClassifyLooksAtItsFirstRows(Classifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().read(prompts)
        if not all(result.error for result in results):
            self._clock = RequestClock(GenerateConfig())
        return results


@saboteur("timeout-in-tenths", "a timeout comes when a tenth of its time is over")
class TimeoutInTenths(Engine):
    def check(self, row: Generation) -> None:
        super().check(row)
        timeout = row.config.timeout
        if timeout is not None and row.clock.seconds >= timeout / 10:
            raise GenerationTimeout(timeout)


@saboteur(
    "timed-out-prompt-kept",
    "what a timed-out stream has drawn stays in the cache, after its prompt",
)
class TimedOutPromptKept(ReferenceStream):
    _kept: ClassVar[WeakKeyDictionary[Engine, dict[Sequence[int], list[int]]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        prompt, contexts = row.prompt, self._kept.setdefault(self.engine, {})
        row.prompt = tuple(contexts.pop(prompt, prompt))
        try:
            yield from super().generate(row, meter)
        except GenerationTimeout:
            if row.drawn:
                contexts[prompt] = list(row.context)
            raise


@saboteur("timeout-from-the-slot", "a timeout begins when the request gets its slot")
class TimeoutFromTheSlot(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        engine, clock = self.engine, row.clock
        row.clock = RequestClock(type(row.config)(cancel=row.config.cancel))
        with engine.slots.taken(lambda: self._check(row)):
            row.clock = RequestClock(row.config) if clock.seconds > 0.01 else clock
            with engine.running([row]):
                engine.prefill(row, meter)
                while row.reason is None:
                    self._check(row)
                    yield from engine.step([row], meter)[0]


class Patient(Slots):
    """Slots for which one waits whatever happens."""

    def _acquire(self, me: int, check: Callable[[], None]) -> None:
        super()._acquire(me, _never)


def _never() -> None:
    """Raise nothing."""


@saboteur("deaf-in-line", "a request that waits for a slot is not stopped before it has one")
class DeafInLine(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Patient(self.slots.count)


class Ghosts(Slots):
    """Slots that keep a place for who has left the line."""

    @contextmanager
    def taken(self, check: Callable[[], None]) -> Iterator[None]:
        with super().taken(lambda: self._leaving(check)):
            yield

    def _leaving(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception:
            self._holders.append(-1)
            raise


@saboteur(
    "place-in-line-kept", "who leaves the line while he waits keeps the slot that he would have had"
)
class PlaceInLineKept(Engine):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.slots = Ghosts(self.slots.count)


_LAST_CHUNK = 0.3  # seconds
_MANY = 600  # tokens


@saboteur(
    "deaf-after-the-last-chunk",
    "a cancel that comes while the last chunk of a prompt is read is heard after the first token",
)
class DeafBehindTheLastChunk(ReferenceStream):
    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        engine = self.engine
        with engine.slots.taken(lambda: self._check(row)), engine.running([row]):
            engine.prefill(row, meter)
            if len(row.prompt) > _MANY:
                time.sleep(_LAST_CHUNK)
            while row.reason is None:
                yield from engine.step([row], meter)[0]
                self._check(row)
