"""One generation: a stream of the server, and short requests where the stream omits a token.

A stream omits a token at which the text ends inside a character; it only counts it. There the
stream is closed, and the generation continues in requests of a few tokens that report all of them,
with seeds derived from the first one: the same seed gives the same tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from core.errors import EmptyPromptError, PromptTooLongError
from core.options import GenerateConfig
from core.types import FinishReason
from core_remote import failures
from core_remote.connection import Put
from core_remote.llama_cpp.events import Event, matched
from core_remote.llama_cpp.logprobs import LogprobReader
from core_remote.llama_cpp.requests import completion, own_seed, seed_of
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.vocabulary import ServerVocabulary

_TOGETHER = 8  # tokens of one request, if a stream would not report them


class GenerationLine(msgspec.Struct, frozen=True):
    """A line of a generation: a token, the prompt's length, or the reason of the end."""

    token: int | None = None
    logprob: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    reason: FinishReason | None = None


class ServerGeneration:
    """One prompt's generation, for work that runs on the connection's thread.

    ``limit``: tokens that a prompt may have; the last drawn token needs no cell.
    """

    def __init__(
        self, server: LlamaServer, vocabulary: ServerVocabulary, limit: int, config: GenerateConfig
    ) -> None:
        self._server, self._vocabulary = server, vocabulary
        self._limit, self._config = limit, config
        self._logprob_reader = LogprobReader(server, vocabulary)
        self._seed = own_seed(config)
        self._ids: list[int] = []
        self._step = self._most = 0

    async def run(self, ids: Sequence[int], put: Put) -> None:
        """Continue a prompt. Raises `core.RequestError` if it is invalid."""
        if not ids:
            raise EmptyPromptError("The prompt has no tokens.")
        if len(ids) > self._limit:
            raise PromptTooLongError(len(ids), self._limit)
        self._ids = list(ids)
        self._most = min(self._config.max_tokens, self._limit - len(ids) + 1)
        _say(put, GenerationLine(prompt_tokens=len(ids)))

        reason: FinishReason | None = await self._stream(put)
        while reason is None:
            reason = await self._some(put)
        _say(put, GenerationLine(reason=reason))

    async def _stream(self, put: Put) -> FinishReason | None:
        """Stream as far as the server reports each token; None if it omitted one and continues."""
        last: Event | None = None
        body = self._body(self._most, stream=True)
        async with self._server.stream(body) as events:
            async for event in events:
                if event.stop:
                    return self._ended(event, last, put)
                if not event.tokens:
                    continue
                self._vocabulary.known(event.tokens, self._server)
                if self._step + (last is not None) >= self._most:
                    raise failures.nonsense(
                        self._server.address, f"more than the {self._most} tokens requested"
                    )
                if last is not None:
                    self._put_event(last, put)
                    last = None
                if event.tokens_predicted != self._step + 1:
                    return None
                if self._vocabulary.pieces[event.tokens[0]]:
                    self._put_event(event, put)
                else:  # perhaps the end
                    last = event
        raise failures.died(self._server.address)

    def _ended(self, event: Event, last: Event | None, put: Put) -> FinishReason | None:
        """Process the stream's last event; ``last``: a token that may itself be the end."""
        _say(
            put,
            GenerationLine(prompt_tokens=len(self._ids) - self._step, cached_tokens=_cached(event)),
        )
        over = event.stop_type == "eos" and event.tokens_predicted == self._step + 1
        if last is not None and not over:
            self._put_event(last, put)
        if over:
            return "stop"
        return "length" if self._step >= self._most else None

    async def _some(self, put: Put) -> FinishReason | None:
        """Generate a few more tokens; return the reason if the generation has ended."""
        before = list(self._ids)
        answer = await self._server.complete(self._body(min(_TOGETHER, self._most - self._step)))
        tokens = answer.tokens
        self._vocabulary.known(tokens, self._server)
        if answer.stop_type == "eos":
            tokens = tokens[:-1]
        elif not tokens:
            raise failures.nonsense(self._server.address, "neither tokens nor an end")
        if len(tokens) > self._most - self._step:
            raise failures.nonsense(
                self._server.address, f"{len(tokens)} tokens, more than requested"
            )
        logprobs = self._logprobs(before, tokens, answer)
        for token in tokens:
            logprob = await anext(logprobs)
            self._put(token, logprob, put)
        if answer.stop_type == "eos":
            return "stop"
        return "length" if self._step >= self._most else None

    async def _logprobs(
        self, before: Sequence[int], tokens: Sequence[int], answer: Event
    ) -> AsyncIterator[float | None]:
        """Yield the log-probability of each token, None if not requested."""
        pieces = [self._vocabulary.pieces[token] for token in tokens]
        readings = matched(tokens, answer.completion_probabilities[: len(tokens)], pieces)
        for place, reading in enumerate(readings):
            if not self._config.return_logprobs:
                yield None
            elif reading is not None:
                yield reading.value()
            else:
                known = await self._logprob_reader.one([*before, *tokens[:place]], tokens[place])
                yield known.logprob

    def _body(self, tokens: int, *, stream: bool = False) -> dict[str, object]:
        return completion(
            self._ids,
            self._config,
            tokens=tokens,
            seed=seed_of(self._seed, self._step),
            probabilities=int(self._config.return_logprobs),
            context=self._limit + 1,
            stream=stream,
        )

    def _put_event(self, event: Event, put: Put) -> None:
        readings = event.completion_probabilities
        wanted = self._config.return_logprobs and readings
        self._put(event.tokens[0], readings[0].value() if wanted else None, put)

    def _put(self, token: int, logprob: float | None, put: Put) -> None:
        self._ids.append(token)
        self._step += 1
        _say(put, GenerationLine(token, logprob))


def _cached(event: Event) -> int:
    return event.timings.cache_n if event.timings is not None else 0


def _say(put: Put, line: GenerationLine) -> None:
    put(msgspec.json.encode(line))
