"""One prompt that the fake continues: its answer, drawn character by character."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from core.errors import EmptyPromptError, PromptTooLongError
from core.kit.base import RequestClock
from core.kit.support import unicode_error
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.testing.sampling import draw, logprob
from core.testing.script import Script
from core.testing.vocabulary import END, Detokenizer, asked, encode
from core.types import FinishReason, GenerateMetrics, Token

_CHUNK = 64  # prompt tokens between two checks of cancel and timeout


@dataclass(frozen=True, slots=True)
class Engine:
    """State shared by all requests of one fake; ``check_open`` raises once it is closed."""

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
        self.script.check(asked(prompt))
        return ids

    def check_length(self, length: int) -> None:
        """Raise `PromptTooLongError` for more tokens than the context holds."""
        if length > self.context_length:
            raise PromptTooLongError(length, self.context_length)

    def room(self, prompt_tokens: int) -> float:
        """Return the number of tokens that fit after a prompt: at least one, in a full context."""
        return math.inf if self.rotates else max(1, self.context_length - prompt_tokens)


class Generation:
    """A row. ``reason`` is None until it has ended; ``given`` counts the emitted tokens."""

    def __init__(
        self, engine: Engine, prompt: str, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._engine, self._prompt, self._config, self._clock = engine, prompt, config, clock
        self._assembler = TokenAssembler(Detokenizer(), config.stop)
        self.reason: FinishReason | None = None
        self.prompt_tokens = self.given = 0
        self._prefilled = 0.0

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens, each as soon as its text is final. Raises the row's error."""
        ids = self._engine.ids(self._prompt)
        self.prompt_tokens = len(ids)
        for _ in range(0, len(ids), _CHUNK):  # as an engine reads a long prompt
            self._check()
        answer = self._engine.script.answer(asked(self._prompt))
        self._prefilled = self._clock.seconds

        for token in self._drawn(ids, answer):
            self.given += 1
            yield token

    def metrics(self) -> GenerateMetrics:
        """Return the cost of the row so far."""
        seconds = self._clock.seconds
        return GenerateMetrics(
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.given,
            prefill_seconds=self._prefilled,
            decode_seconds=seconds - self._prefilled,
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
            # Where the answer ends, or was told to end, no token is given.
            self._check()
            likely = ord(answer[count]) if count < len(answer) else END
            token = draw(likely, seen, config, random)
            if token in stops:
                self.reason = "stop"
                break

            # The text is given as far as no stop string can begin in it any more.
            seen.add(token)
            count += 1
            own = logprob(token, likely) if config.return_logprobs else None
            yield from self._assembler.add(token, own)
            if self._assembler.stopped:
                self.reason = "stop"
            elif count >= limit:
                self.reason = "length"
        yield from self._assembler.finish()
