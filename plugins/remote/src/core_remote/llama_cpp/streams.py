"""A generation of llama.cpp's server as a `core_remote.stream.Wire`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from core.errors import GenerationCancelled
from core.kit.base import RequestClock
from core.kit.text_stream import StreamDetokenizer, TokenAssembler
from core.options import CancelToken, GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_remote import failures
from core_remote.connection import Connection, Put
from core_remote.counting import seen
from core_remote.exchange import Exchange
from core_remote.llama_cpp.generation import GenerationLine, ServerGeneration

Prepare = Callable[[], Awaitable[list[int]]]
"""The ids of the prompt. Raises its error."""

_decoder = msgspec.json.Decoder(GenerationLine)


class TokenWire:
    """One request. Stop strings and stop tokens are found on this side, by core's rules."""

    def __init__(
        self,
        connection: Connection,
        generation: ServerGeneration,
        prepare: Prepare,
        config: GenerateConfig,
        detokenizer: StreamDetokenizer,
        special: Mapping[int, str],
    ) -> None:
        self._connection, self._generation, self._prepare = connection, generation, prepare
        self._assembler = TokenAssembler(detokenizer, config.stop, special)
        self._stops = frozenset(config.stop_tokens)
        self._clock: RequestClock | None = None
        self._first = 0.0
        self._prompt_tokens = self._cached_tokens = 0
        self.reason: FinishReason | None = None
        self.over = False

    def begin(self, clock: RequestClock) -> Exchange:
        """Send the request. An error of the prompt is its answer."""
        self._clock = clock
        return self._connection.carry_out(lambda exchange: self._work(exchange.put))

    def _work(self, put: Put) -> Coroutine[Any, Any, None]:
        async def work() -> None:
            await self._generation.run(await self._prepare(), put)

        return work()

    def feed(self, line: bytes | None) -> list[Token]:
        """Return the tokens that a line completes. Raises if the answer stops without an end."""
        if line is None:
            raise failures.died(self._connection.address)
        event = _decoder.decode(line)
        if self.reason is not None:
            return []
        if event.prompt_tokens is not None:
            self._prompt_tokens, self._cached_tokens = event.prompt_tokens, event.cached_tokens
        if event.reason is not None:
            self.over = True
            return self._ended(event.reason)
        return [] if event.token is None else self._token(event.token, event.logprob)

    def watch(self, exchange: Exchange, cancel: CancelToken) -> None:
        """Close the connection once the cancel is set."""

        def look() -> bool:
            over = cancel.is_set()
            if over:
                exchange.watch = None
                exchange.put(GenerationCancelled())
                exchange.abort()
            return over

        self._connection.watch(exchange, look)

    def stop(self) -> bool:
        """Close the connection, the only way to stop the server."""
        return False

    def metrics(self, clock: RequestClock, given: int) -> GenerateMetrics:
        """Return the metrics as measured here, and the server's of the prompt."""
        prompt, cached = self._prompt_tokens, self._cached_tokens
        return seen(clock, self._first, prompt=prompt, cached=cached, generated=given)

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` if the connection is closed."""
        self._connection.check_usable()

    def _token(self, token: int, logprob: float | None) -> list[Token]:
        if not self._first and self._clock is not None:
            self._first = self._clock.seconds
        if token in self._stops:
            return self._ended("stop")
        ready = self._assembler.add(token, logprob)
        if self._assembler.stopped:
            self.reason = "stop"
        return ready

    def _ended(self, reason: FinishReason) -> list[Token]:
        rest = self._assembler.finish()
        self.reason = "stop" if self._assembler.stopped else reason
        return rest
