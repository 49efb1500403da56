"""Saboteurs that do not stop, or not where they should, or not cleanly."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from core.errors import GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream


@saboteur("swallowed-cancel", "a cancelled stream ends in peace, as if it were complete")
class SwallowedCancel(ReferenceStream):
    """Keeps the error of a cancel from the reader."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, and ends at a cancel without an error."""
        try:
            yield from super().generate(row, meter)
        except GenerationCancelled:
            return


@saboteur("cancel-after-the-first", "cancel is looked at after the first token only")
class CancelAfterTheFirst(Engine):
    """Draws a first token before it looks, like a loop that tests its condition at the end."""

    def check(self, row: Generation) -> None:
        """Looks at cancel and timeout as soon as a token is drawn, and not before."""
        self.check_open()
        if row.drawn:
            row.clock.check()


@saboteur("deaf-while-decoding", "cancel is looked at in prefill only")
class DeafWhileDecoding(ReferenceStream):
    """Looks at the model alone in the loop over tokens, not at the cancel."""

    def _check(self, row: Generation) -> None:
        self.engine.check_open()


@saboteur("deaf-in-prefill", "cancel is not looked at while a prompt is read")
class DeafInPrefill(Engine):
    """Reads a prompt at once, so that a long one cannot be stopped."""

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Reads all of the prompt in one go."""
        meter.prompt_tokens += len(row.prompt)
        with meter.prefilling():
            row.context.extend(row.prompt)


@saboteur("deaf-batch", "a batch that runs cannot be stopped")
class DeafBatch(Batch):
    """Looks at the cancel of rows that have not begun, and of no others."""

    def _wanted(self, active: list[int]) -> list[int]:
        return active


@saboteur("deaf-classify", "classify() does not look at cancel and timeout")
class DeafClassify(Classifier):
    """Does not check its clock, because classify is fast."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, config, meter)
        self._clock = type(self._clock)(GenerateConfig())


@saboteur("timeout-as-cancel", "a timeout is reported as a cancel")
class TimeoutAsCancel(Engine):
    """Raises one error for both ways to stop a request."""

    def check(self, row: Generation) -> None:
        """Raises `GenerationCancelled` for a timeout too."""
        try:
            super().check(row)
        except GenerationTimeout:
            raise GenerationCancelled from None


@saboteur("cancel-by-presence", "a cancel counts as set as soon as there is one")
class CancelByPresence(ReferenceStream):
    """Tests `if config.cancel` instead of `if config.cancel.is_set()`."""

    def _check(self, row: Generation) -> None:
        if self.config.cancel:
            raise GenerationCancelled
        super()._check(row)


@saboteur(
    "half-read-prompt-kept",
    "a prompt whose reading was cancelled stays in the prompt cache, and is taken for complete",
)
class HalfReadPromptKept(ReferenceStream):
    """Leaves a half-read prompt to the next stream with this prompt."""

    _half_read: ClassVar[WeakKeyDictionary[Engine, Sequence[int]]] = WeakKeyDictionary()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, reading its prompt from the cache if it is there."""
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
    """Closes while a reference to the generator, which occupies the slot, remains."""

    _held: ClassVar[list[Generator[Token, None, None]]] = []

    def close(self) -> None:
        """Closes the stream, but where there is one slot, not the generator."""
        if self.engine.slots.count > 1:
            super().close()
            return
        self._closed = True
        self._held.append(self._tokens)
