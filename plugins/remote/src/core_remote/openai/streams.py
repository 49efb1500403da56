"""A stream of OpenAI's API, for `core_remote.stream.RemoteStream`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from core.errors import CoreError, PromptTooLongError
from core.kit.base import RequestClock, never_stop
from core.kit.text_stream import TokenBuffer
from core.options import CancelToken, GenerateConfig
from core.types import FinishReason, GenerateMetrics, Token
from core_remote import failures
from core_remote.connection import Connection
from core_remote.counting import seen
from core_remote.exchange import Exchange
from core_remote.openai.events import id_of, piece_of, prompt_tokens, tokens_of
from core_remote.openai.requests import Request, RequestVariant

_WITHOUT_TEXT = Token(id_of(""), "")
_COUNT_SECONDS = 2.0
_TURN = " " * 32  # about as much as a template adds to a message


class OpenAIWire:
    """One request. Stop strings and stop tokens are found on this side, by core's rules.

    ``counted``: if it is stopped early, another request counts the prompt's tokens.
    """

    def __init__(
        self,
        connection: Connection,
        variant: RequestVariant,
        config: GenerateConfig,
        prepare: Callable[[], Request],
        *,
        counted: bool = True,
    ) -> None:
        self._connection, self._variant = connection, variant
        self._config, self._prepare, self._counted = config, prepare, counted
        self._buffer = TokenBuffer(config.stop)
        self._stops = frozenset(config.stop_tokens)
        self._request: Request | None = None
        self._reported: FinishReason | None = None
        self._first = 0.0
        self._prompt_tokens = self._cached_tokens = 0
        self._clock: RequestClock | None = None
        self._any = False
        self._came = self._counted_tokens = 0
        self.over = False
        self.reason: FinishReason | None = None

    def begin(self, clock: RequestClock) -> Exchange:
        """Send the request. Raises the error of the prompt."""
        self._clock = clock
        path, body = self._request = self._prepare()
        if self._variant.counts_first or self._may_be_too_long(body):
            self._count(path, body, clock)
        return self._connection.ask(path, body, self._config.max_tokens)

    def _may_be_too_long(self, body: dict[str, Any]) -> bool:
        """Return whether prompt and answer might not fit: a token has at least one byte."""
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            prompt = "".join(f"{_TURN}{turn['content']}" for turn in body["messages"])
        return len(prompt.encode()) + self._config.max_tokens > self._variant.context_length

    def _count(
        self, path: str, body: dict[str, Any], clock: RequestClock, *, in_turn: bool = True
    ) -> None:
        """Have the server count the prompt's tokens, to limit the answer to the context.

        The server reads the prompt for that; most servers cache it.
        """
        get = self._connection.get_in_turn if in_turn else self._connection.get
        status, answer = get(path, clock.check, {**_plain(body), "max_tokens": 1})
        if status != 200:
            raise failures.of_words(self._connection.address, status, answer)
        self._prompt_tokens, limit = prompt_tokens(answer), self._variant.context_length
        if self._prompt_tokens > limit:
            raise PromptTooLongError(self._prompt_tokens, limit)
        body["max_tokens"] = min(body["max_tokens"], max(1, limit - self._prompt_tokens))

    def feed(self, line: bytes | None) -> list[Token]:
        """Return the tokens that a line completes. Raises the error in it."""
        address = self._connection.address
        if line is None:
            return self._ended()
        piece = piece_of(line, address)
        if piece is None or self.reason is not None:
            return []
        self._any = True
        if piece.prompt_tokens is not None:
            self._prompt_tokens = piece.prompt_tokens
            self._cached_tokens, self._counted_tokens = piece.cached_tokens, piece.generated_tokens
        ready: list[Token] = []
        for token in tokens_of(piece, self._config.return_logprobs):
            if self._came == self._config.max_tokens:  # the server continues: leave it
                self.reason = "length"
                return [*ready, *self._buffer.release()]
            if token.id in self._stops:
                self.reason = "stop"
                return [*ready, *self._buffer.release()]
            self._see()
            self._came += 1
            ready += self._buffer.hold(token)
            if self._buffer.stopped:
                self.reason = "stop"
                return ready
        self._reported = piece.reason or self._reported
        return [*ready, *self._ended()] if piece.done else ready

    def watch(self, exchange: Exchange, cancel: CancelToken) -> None:
        """Close the connection once the cancel is set."""

    def stop(self) -> bool:
        """Close the connection, the only way to stop; the prompt can still be counted."""
        if self._any and self._counted and not self._prompt_tokens and self._request is not None:
            path, body = self._request
            late = RequestClock(GenerateConfig(timeout=_COUNT_SECONDS))
            with suppress(CoreError):
                # The stream still has its turn, and ends after this.
                self._count(path, dict(body), late, in_turn=False)
        return False

    def metrics(self, clock: RequestClock, given: int) -> GenerateMetrics:
        """Return the metrics as measured here, with the server's count of the prompt's tokens."""
        prompt, cached = self._prompt_tokens, self._cached_tokens
        return seen(clock, self._first, prompt=prompt, cached=cached, generated=given)

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` if the connection is closed."""
        self._connection.check_usable()

    def _see(self) -> None:
        if not self._first and self._clock is not None:
            self._first = self._clock.seconds

    def _ended(self) -> list[Token]:
        """Return the rest of the tokens, if the server has reported the end."""
        if self._reported is None:
            raise failures.died(self._connection.address) if self._any else self._why()
        self.reason, self.over = self._reported, True
        if self.reason == "length":
            # Tokens whose text came with another's piece: the server counts them.
            short = min(self._counted_tokens, self._config.max_tokens) - self._came
            rest = [token for _ in range(short) for token in self._buffer.hold(_WITHOUT_TEXT)]
            rest += self._buffer.release()
        else:
            rest = self._buffer.release()
        if self._buffer.stopped:
            self.reason = "stop"
        return rest

    def _why(self) -> Exception:
        """Return the error of a stream that ended before its first event, by a plain request.

        llama-cpp-python detects a prompt that is too long only after sending the status.
        """
        assert self._request is not None
        path, body = self._request
        short_body = {**_plain(body), "max_tokens": 1}
        try:
            status, words = self._connection.get(path, never_stop, short_body)
        except CoreError as error:
            return error
        if status == 200:
            return failures.died(self._connection.address)
        return failures.of_words(self._connection.address, status, words)


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return the same request, not as a stream."""
    return {name: it for name, it in body.items() if name not in ("stream", "stream_options")}
