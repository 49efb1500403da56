"""The events of a streamed answer: chunks of OpenAI's chat completions and completions.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.54.0,
``types/chat/chat_completion_chunk.py``, ``types/completion.py``). A stream's last event,
``data: [DONE]``, is no chunk, and the server's to send.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.types import FinishReason, Token
from core.wires.completions import chat_logprobs, completion_logprobs, finish_reason, usage_body
from core.wires.generation import GenerationRequest
from core.wires.usage import Usage


class Chunks:
    """Makes the bodies of one stream's events, in order: `begin`, `token` for each, `end`."""

    def __init__(self, request: GenerationRequest, id: str, created: int, model: str) -> None:
        self._chat = request.kind == "chat"
        self._logprobs = bool(request.options.get("return_logprobs"))
        self._include_usage = request.include_usage
        self._facts = {
            "id": id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created,
            "model": model,
        }
        self._length = 0  # characters until now

    def begin(self) -> Iterator[dict[str, object]]:
        """A chat begins with who speaks."""
        if self._chat:
            yield self._chunk(self._choice({"role": "assistant", "content": ""}, None, None))

    def token(self, token: Token) -> dict[str, object]:
        """The chunk of one token."""
        logprobs: dict[str, object] | None = None
        if self._logprobs:
            logprobs = (
                chat_logprobs([token]) if self._chat else completion_logprobs([token], self._length)
            )
        self._length += len(token.text)
        return self._chunk(self._choice({"content": token.text}, logprobs, None))

    def end(self, reason: FinishReason, usage: Usage) -> Iterator[dict[str, object]]:
        """The chunk that says why it ended, and one with the usage where it was asked for.

        Raises `WireError` for what was cancelled or failed.
        """
        yield self._chunk(self._choice({}, None, finish_reason(reason)))
        if self._include_usage:
            yield {**self._facts, "choices": [], "usage": usage_body(usage)}

    def _choice(
        self, delta: dict[str, object], logprobs: object, reason: str | None
    ) -> dict[str, object]:
        said = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        return {"index": 0, **said, "logprobs": logprobs, "finish_reason": reason}

    def _chunk(self, choice: dict[str, object]) -> dict[str, object]:
        return {**self._facts, "choices": [choice]}
