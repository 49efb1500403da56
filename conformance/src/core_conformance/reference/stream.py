"""What ``generate`` and ``chat`` return: the work is done in the thread that reads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from core.errors import GenerationCancelled
from core.options import GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_conformance.reference.engine import Engine
from core_conformance.reference.generation import Generation
from core_conformance.reference.meter import Meter

Record = Callable[[GenerateMetrics], None]


class ReferenceStream(Iterator[Token]):
    """A `core.TokenStream`. It holds a slot from its first token to its end."""

    def __init__(self, engine: Engine, prompt: str, config: GenerateConfig, record: Record) -> None:
        self.engine, self.prompt, self.config = engine, prompt, config
        self._record = record
        self._tokens = self.run()
        self._started = self._closed = False
        self._reason: FinishReason | None = None
        self._metrics = GenerateMetrics()

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until the stream has ended."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Of this stream; all zero until it has ended."""
        return self._metrics

    def __next__(self) -> Token:
        self._started = True
        return next(self._tokens)

    def close(self) -> None:
        """Stop. While another thread reads, it stops at that thread's next token."""
        self._closed = True
        if not self._started:
            self._started, self._reason = True, "cancelled"
        with suppress(ValueError):  # another thread is inside the generator
            self._tokens.close()

    def run(self) -> Generator[Token, None, None]:
        """The whole request, and the book-keeping at its end."""
        meter = Meter()
        reason: FinishReason = "error"
        try:
            row = self.engine.generation(self.prompt, self.config)
            for token in self.generate(row, meter):
                if self._closed:
                    break
                yield token
            reason = "cancelled" if self._closed else row.reason or "error"
        except (GeneratorExit, GenerationCancelled) as error:
            reason = "cancelled"
            if isinstance(error, GeneratorExit) or not self._closed:
                raise
        finally:
            self._reason, self._metrics = reason, meter.metrics()
            self._record(self._metrics)

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """The tokens of a row, as soon as it has a slot. Raises what stops it."""
        engine = self.engine
        with engine.slots.taken(lambda: self._check(row)), engine.running([row]):
            engine.prefill(row, meter)
            while row.reason is None:
                self._check(row)
                yield from engine.step([row], meter)[0]

    def _check(self, row: Generation) -> None:
        self.engine.check(row)
        if self._closed:
            raise GenerationCancelled
