"""Saboteurs that keep a little of whatever they have done, for good."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

from core.errors import GenerationTimeout, ModelClosedError, PromptTooLongError
from core.options import GenerateConfig
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import LEDGER, Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream

_STAYS_SECONDS = 60.0  # longer than the check takes on a slow machine
_LOOKS_SECONDS = 0.2
_WEIGHTS = 16 << 20  # bytes: they show in the memory of the process


@saboteur("registry-of-streams", "streams that were closed are kept in a list, for statistics")
class RegistryOfStreams(ReferenceStream):
    """A stream that is never forgotten."""

    _all: ClassVar[deque[ReferenceStream]] = deque(maxlen=1000)

    def close(self) -> None:
        """Closes the stream, and remembers it."""
        super().close()
        self._all.append(self)


@saboteur("timed-out-context-kept", "the context of a stream that ran out of time is not freed")
class TimedOutContextKept(ReferenceStream):
    """Frees on the expected exits only."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, whose memory is lost after a timeout."""
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
    """Has a timer that is never cancelled."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row, while a thread sleeps."""
        if self.config.timeout is not None and self.config.timeout < 1.0:
            threading.Thread(target=self._watch, args=(self.engine,), daemon=True).start()
        yield from super().generate(row, meter)

    @staticmethod
    def _watch(engine: Engine) -> None:
        """Stays until the model is closed: it shall not be counted in what comes after."""
        with suppress(ModelClosedError):
            for _ in range(round(_STAYS_SECONDS / _LOOKS_SECONDS)):
                time.sleep(_LOOKS_SECONDS)
                engine.check_open()


@saboteur("left-iterator-keeps-slot", "a batch_stream that is not read to its end keeps its slot")
class LeftIteratorKeepsSlot(ReferenceModel):
    """Caches the generators that it has made."""

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
    """Opens a file in which to note what was wrong."""

    _open: ClassVar[deque[int]] = deque()

    def check_length(self, length: int) -> None:
        """Raises for a prompt that is too long, with a file open."""
        try:
            super().check_length(length)
        except PromptTooLongError:
            self._open.append(os.open(os.devnull, os.O_RDONLY))
            while len(self._open) > 200:  # it shall not fill the tests' process
                os.close(self._open.popleft())
            raise


@saboteur("closed-models-kept", "models that were closed are kept in a list")
class ClosedModelsKept(ReferenceModel):
    """A model that is never forgotten."""

    _all: ClassVar[deque[ReferenceModel]] = deque(maxlen=1000)

    def release(self) -> None:
        """Gives the weights back, and remembers the model."""
        self._all.append(self)
        super().release()


@saboteur(
    "weights-until-dropped",
    "the weights of a closed model are freed when the last reference to it is gone",
)
class WeightsUntilDropped(ReferenceModel):
    """Says that they are freed, and waits for the garbage collector."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._weights = b"\1" * _WEIGHTS
