"""The events of a streamed answer: chunks of OpenAI's chat completions and completions.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.57.0,
``types/chat/chat_completion_chunk.py``, ``types/completion.py``). A stream's last event,
``data: [DONE]``, is not a chunk: the server sends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.types import FinishReason, Token
from core_wires.completions import (
    Extras,
    chat_logprobs,
    completion_logprobs,
    extras_of,
    finish_reason,
    usage_body,
)
from core_wires.generation import GenerationRequest
from core_wires.usage import Usage


class Chunks:
    """Maker of the bodies of one stream's events: `begin`, then for each answer, by index, `token`
    for each token and `end`, and finally `usage`."""

    def __init__(
        self,
        request: GenerationRequest,
        id: str,
        created: int,
        model: str,
        extras: Sequence[Extras] = (),
    ) -> None:
        self._request = request
        self._chat = request.kind == "chat"
        self._logprobs = bool(request.options.get("return_logprobs"))
        self._facts = {
            "id": id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created,
            "model": model,
        }
        self._lengths = [0] * request.answers  # characters until now
        by_answer = [extras_of(extras, request, index) for index in range(request.answers)]
        self._echoed = [own.prompt for own in by_answer]
        self._likeliest = [own.likeliest for own in by_answer]  # for the first token

    def begin(self) -> Iterator[dict[str, object]]:
        """Yield the first chunks: the role of a chat, the prompt of an echo."""
        for index in range(self._request.answers):
            if self._chat:
                yield self._chunk(index, {"role": "assistant", "content": ""})
            elif self._request.echo:
                prompt = self._request.prompts[index // self._request.n]
                logprobs = self._logprobs_of(index, self._echoed[index])
                yield self._chunk(index, {"content": prompt}, logprobs)
                self._lengths[index] = len(prompt)

    def token(self, token: Token, index: int = 0) -> dict[str, object]:
        """Return the chunk of one token."""
        logprobs = self._logprobs_of(index, [token])
        self._lengths[index] += len(token.text)
        return self._chunk(index, {"content": token.text}, logprobs)

    def end(self, reason: FinishReason, index: int = 0) -> dict[str, object]:
        """Return the chunk with the reason why an answer ended.

        Raises `WireError` for one that failed.
        """
        return self._chunk(index, {}, reason=finish_reason(reason))

    def usage(self, usage: Usage) -> Iterator[dict[str, object]]:
        """Yield the chunk with the usage, if it was requested."""
        if self._request.include_usage:
            yield {**self._facts, "choices": [], "usage": usage_body(usage)}

    def _logprobs_of(self, index: int, tokens: Sequence[Token]) -> dict[str, object] | None:
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
        text = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        choice = {"index": index, **text, "logprobs": logprobs, "finish_reason": reason}
        return {**self._facts, "choices": [choice]}
