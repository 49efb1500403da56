"""The events of a streamed answer: chunks of OpenAI's chat completions and completions.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.57.0,
``types/chat/chat_completion_chunk.py``, ``types/completion.py``). A stream's last event,
``data: [DONE]``, is no chunk, and the server's to send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.types import FinishReason, Token
from core.wires.completions import (
    NOTHING,
    Beside,
    chat_logprobs,
    completion_logprobs,
    finish_reason,
    usage_body,
)
from core.wires.generation import GenerationRequest
from core.wires.usage import Usage


class Chunks:
    """Makes the bodies of one stream's events: `begin`, then of each answer, by its index, `token`
    for each token and `end`, and `usage` at last."""

    def __init__(
        self,
        request: GenerationRequest,
        id: str,
        created: int,
        model: str,
        beside: Beside = NOTHING,
    ) -> None:
        self._request, self._beside = request, beside
        self._chat = request.kind == "chat"
        self._logprobs = bool(request.options.get("return_logprobs"))
        self._facts = {
            "id": id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created,
            "model": model,
        }
        self._lengths = [0] * request.n  # characters until now
        self._likeliest = [beside.likeliest] * request.n  # to be told with the first token

    def begin(self) -> Iterator[dict[str, object]]:
        """A chat begins with who speaks, an echo with the prompt."""
        for index in range(self._request.n):
            if self._chat:
                yield self._chunk(index, {"role": "assistant", "content": ""})
            elif self._request.echo:
                prompt = self._request.prompt
                yield self._chunk(
                    index, {"content": prompt}, self._told(index, self._beside.prompt)
                )
                self._lengths[index] = len(prompt)

    def token(self, token: Token, index: int = 0) -> dict[str, object]:
        """The chunk of one token."""
        told = self._told(index, [token])
        self._lengths[index] += len(token.text)
        return self._chunk(index, {"content": token.text}, told)

    def end(self, reason: FinishReason, index: int = 0) -> dict[str, object]:
        """The chunk that says why an answer ended. Raises `WireError` for one that failed."""
        return self._chunk(index, {}, reason=finish_reason(reason))

    def usage(self, usage: Usage) -> Iterator[dict[str, object]]:
        """The chunk with the usage, where it was asked for."""
        if self._request.include_usage:
            yield {**self._facts, "choices": [], "usage": usage_body(usage)}

    def _told(self, index: int, tokens: Sequence[Token]) -> dict[str, object] | None:
        if not self._logprobs:
            return None
        likeliest, self._likeliest[index] = self._likeliest[index], ()
        if self._chat:
            return chat_logprobs(tokens, likeliest)
        return completion_logprobs(tokens, likeliest, self._lengths[index])

    def _chunk(
        self,
        index: int,
        delta: dict[str, object],
        logprobs: dict[str, object] | None = None,
        reason: str | None = None,
    ) -> dict[str, object]:
        said = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        choice = {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}
        return {**self._facts, "choices": [choice]}
