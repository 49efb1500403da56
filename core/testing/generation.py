"""Generations of the fake: its answer to one prompt, drawn character by character, and streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from core.errors import EmptyPromptError, GenerationCancelled, PromptTooLongError
from core.kit.base import RequestClock, TokenStreamBase
from core.kit.support import unicode_error
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.testing.language import END, Detokenizer, draw, encode, logprob, question
from core.testing.script import Script
from core.types import FinishReason, GenerateMetrics, Token

_CHUNK = 64  # prompt tokens between two checks of cancel and timeout


@dataclass(frozen=True, slots=True)
class FakeEngine:
    """The parts common to all requests of one fake; ``check_open`` raises once it is closed."""

    script: Script
    context_length: int
    rotates: bool
    check_open: Callable[[], None]

    def ids(self, prompt: str) -> list[int]:
        """Return a prompt's tokens. Raises for an invalid prompt, and the test's own errors."""
        if not prompt:
            raise EmptyPromptError
        if error := unicode_error(prompt):
            raise error
        ids = encode(prompt)
        self.check_length(len(ids))
        self.script.check(question(prompt))
        return ids

    def check_length(self, length: int) -> None:
        """Raise `PromptTooLongError` for more tokens than the context holds."""
        if length > self.context_length:
            raise PromptTooLongError(length, self.context_length)

    def room(self, prompt_tokens: int) -> float:
        """Return the number of tokens that fit after a prompt: at least one, in a full context."""
        return math.inf if self.rotates else max(1, self.context_length - prompt_tokens)


class FakeGeneration:
    """One prompt's tokens, drawn as they are read.

    ``reason`` is None until they have ended; ``emitted`` counts them.
    """

    def __init__(
        self, engine: FakeEngine, prompt: str, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._engine, self._prompt, self._config, self._clock = engine, prompt, config, clock
        self._assembler = TokenAssembler(Detokenizer(), config.stop)
        self.reason: FinishReason | None = None
        self.prompt_tokens = self.emitted = 0
        self._prefill_seconds = 0.0

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, each as soon as its text is final. Raises the row's error."""
        ids = self._engine.ids(self._prompt)
        self.prompt_tokens = len(ids)
        for _ in range(0, len(ids), _CHUNK):  # as an engine reads a long prompt
            self._check()
        answer = self._engine.script.answer(question(self._prompt))
        self._prefill_seconds = self._clock.seconds

        for token in self._drawn(ids, answer):
            self.emitted += 1
            yield token

    def metrics(self) -> GenerateMetrics:
        """Return the cost of the row so far."""
        seconds = self._clock.seconds
        return GenerateMetrics(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.emitted,
            prefill_seconds=self._prefill_seconds,
            decode_seconds=seconds - self._prefill_seconds,
            total_seconds=seconds,
        )

    def _check(self) -> None:
        self._engine.check_open()
        self._clock.check()

    def _drawn(self, ids: list[int], answer: str) -> Iterator[Token]:
        config, random = self._config, Random(self._config.seed)
        stops, seen = {END, *config.stop_tokens}, set(ids)
        limit = min(config.max_tokens, self._engine.room(len(ids)))
        count = 0
        while self.reason is None:
            # The end of the answer, or a stop token: nothing is emitted for it.
            self._check()
            likely = ord(answer[count]) if count < len(answer) else END
            token = draw(likely, seen, config, random)
            if token in stops:
                self.reason = "stop"
                break

            # Text is emitted once no stop string can begin in it.
            seen.add(token)
            count += 1
            own = logprob(token, likely) if config.return_logprobs else None
            yield from self._assembler.add(token, own)
            if self._assembler.stopped:
                self.reason = "stop"
            elif count >= limit:
                self.reason = "length"
        yield from self._assembler.finish()


class FinishedRow:
    """A generation that was read to its end; its tokens wait here, and its error after them."""

    def __init__(self, row: FakeGeneration) -> None:
        self._waiting: list[Token] = []
        self._error: Exception | None = None
        try:
            self._waiting.extend(row.tokens())  # tokens before an error are kept
        except Exception as error:  # noqa: BLE001 - like every error, it is raised by next()
            self._error = error
        self.reason, self._metrics = row.reason, row.metrics()

    def tokens(self) -> Iterator[Token]:
        """Yield the waiting tokens. Raises the row's error."""
        yield from self._waiting
        if self._error is not None:
            raise self._error

    def metrics(self) -> GenerateMetrics:
        """Return the cost of the row."""
        return self._metrics


class FakeStream(TokenStreamBase):
    """A `core.TokenStream` of one row, which works in the thread that reads it.

    ``begin`` makes the row, at the first token; ``record`` takes the metrics, at the end.
    ``unread``: the cost if it is closed before the first token.
    """

    def __init__(
        self,
        begin: Callable[[], FakeGeneration | FinishedRow],
        record: Callable[[GenerateMetrics], None],
        unread: GenerateMetrics,
    ) -> None:
        super().__init__()
        self._begin, self._record, self._unread = begin, record, unread
        self._tokens = self._run()
        self._started = self._closed = False
        self._reason: FinishReason | None = None
        self._metrics = GenerateMetrics()

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; all zero until it has ended."""
        return self._metrics

    def next_token(self) -> Token:
        """Return the next token of the row. See `core.TokenStream`."""
        self._started = True
        return next(self._tokens)

    def close(self) -> None:
        """Stop. While another thread reads, it stops at that thread's next token."""
        self._closed = True
        if not self._started:
            self._started, self._reason, self._metrics = True, "cancelled", self._unread
        with suppress(ValueError):  # another thread is inside the generator
            self._tokens.close()

    def _run(self) -> Generator[Token, None, None]:
        row = self._begin()
        reason: FinishReason = "error"
        try:
            for token in row.tokens():
                if self._closed:
                    break
                yield token
            reason = "cancelled" if self._closed else row.reason or "error"
        except (GeneratorExit, GenerationCancelled):
            reason = "cancelled"
            raise
        finally:
            self._reason, self._metrics = reason, row.metrics()
            self._record(self._metrics)
