"""Saboteurs that stop well at the call, and badly on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from core.errors import GenerationCancelled
from core.types import BatchResult, ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream

_LOOKS_ON = 3.0  # seconds: longer than the check waits for it


@saboteur(
    "half-pass-token",
    "a stream that is cancelled gives out a token of the pass that was interrupted",
)
class HalfPassToken(ReferenceStream):
    """Reads the buffer of a pass that did not run to its end."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, and at a cancel after some of them another one."""
        try:
            yield from super().generate(row, meter)
        except GenerationCancelled:
            if row.drawn and not self._closed:
                yield Token(0, "\x00")
            raise


@saboteur(
    "works-on-what-was-cancelled",
    "what a cancelled stream had drawn stays after its prompt, for the next one with this prompt",
)
class WorksOnWhatWasCancelled(ReferenceStream):
    """Keeps a cache by prompt, into which a cancelled request has written more than the prompt."""

    _kept: ClassVar[WeakKeyDictionary[Engine, dict[Sequence[int], list[int]]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, whose context is what a cancelled one has left."""
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
    """Returns by a way on which the slot is forgotten, once tokens were drawn."""

    def tokens(self) -> Iterator[tuple[int, Token]]:
        """Yields row and token; a cancelled row with tokens leaves its slot occupied."""
        yield from super().tokens()
        cancelled = [row for row in self.errors if row in self.rows and self.rows[row].drawn]
        if any(isinstance(self.errors[row], GenerationCancelled) for row in cancelled):
            self._engine.slots._holders.append(-1)


@saboteur(
    "cancelled-rows-lose-tokens",
    "the rows of a cancelled batch come without the tokens that they had",
)
class CancelledRowsLoseTokens(Batch):
    """Makes an empty result of whatever has an error."""

    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        error = self.errors.get(row)
        return super()._result(row, [] if isinstance(error, GenerationCancelled) else tokens)


@saboteur("cancel-ends-finished-rows", "a cancel is the error of the rows that had finished, too")
class CancelEndsFinishedRows(Batch):
    """Gives all rows the reason of the first that was stopped, and cuts their last token."""

    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        stopped = any(isinstance(error, GenerationCancelled) for error in self.errors.values())
        result = super()._result(row, tokens)
        if stopped and result.error is None:
            return BatchResult(result.tokens[:-1], result.finish_reason)
        return result


@saboteur(
    "cancelled-classify-out-of-order",
    "the rows that a cancelled classify has come first, and the others after them",
)
class CancelledClassifyOutOfOrder(Classifier):
    """Returns what it has, and fills up with errors."""

    def _results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super()._results(prompts)
        stopped = [r for r in results if isinstance(r.error, GenerationCancelled)]
        if len(stopped) in (0, len(results)):
            return results
        return [r for r in results if r not in stopped][::-1] + stopped


@saboteur(
    "cancelled-classify-loses-rows",
    "a classify that is cancelled midway returns the rows that it has, and no others",
)
class CancelledClassifyLosesRows(Classifier):
    """Leaves the loop, and returns."""

    def _results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super()._results(prompts)
        done = [r for r in results if not isinstance(r.error, GenerationCancelled)]
        return done or results


@saboteur("cancel-ends-the-neighbours", "a cancelled stream ends the concurrent ones")
class CancelEndsTheNeighbours(ReferenceStream):
    """Stops the pass that all rows share."""

    _stopped: ClassVar[WeakKeyDictionary[Engine, int]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, until another one is cancelled."""
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
    """Has a thread for each cancel, which never ends."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, and lets a thread look at its cancel meanwhile."""
        cancel = self.config.cancel
        if cancel is not None and not isinstance(cancel, threading.Event):
            threading.Thread(target=_watch, args=(cancel.is_set,), daemon=True).start()
        yield from super().generate(row, meter)


def _watch(is_set: Callable[[], bool]) -> None:
    end = time.monotonic() + _LOOKS_ON
    while time.monotonic() < end:
        is_set()
        time.sleep(0.05)
