"""OpenAI's answers to chat completions and completions, made of what a model generated.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.54.0,
``types/chat/chat_completion.py``, ``types/completion.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from core.errors import GenerationCancelled
from core.types import BatchResult, FinishReason, Token
from core.wires.errors import OPENAI, refusal
from core.wires.generation import GenerationRequest
from core.wires.usage import Usage

Finish = Literal["stop", "length"]
_IMPOSSIBLE = -9999.0  # what OpenAI writes for a logprob that is next to minus infinity


def finish_reason(reason: FinishReason) -> Finish:
    """Ours as theirs. What was cancelled or failed has no answer: that raises `WireError`."""
    if reason == "stop" or reason == "length":
        return reason
    raise refusal(OPENAI, GenerationCancelled(f"The generation ended with {reason!r}."))


def response(
    request: GenerationRequest,
    result: BatchResult,
    *,
    id: str,
    created: int,
    model: str,
    usage: Usage | None = None,
) -> dict[str, object]:
    """The body of a 200. Raises `WireError`, with the body of its status, for a row that failed.

    ``created`` is in seconds since 1970. Without ``usage``, the generated tokens are counted alone.
    """
    if result.error is not None:
        raise refusal(OPENAI, result.error)
    make = _chat_choice if request.kind == "chat" else _completion_choice
    return {
        "id": id,
        "object": "chat.completion" if request.kind == "chat" else "text_completion",
        "created": created,
        "model": model,
        "choices": [make(result, bool(request.options.get("return_logprobs")))],
        "usage": usage_body(usage or Usage(output_tokens=len(result.tokens))),
    }


def usage_body(usage: Usage) -> dict[str, object]:
    """``usage`` as both wires have it."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _chat_choice(result: BatchResult, logprobs: bool) -> dict[str, object]:
    return {
        "index": 0,
        "message": {"role": "assistant", "content": result.text, "refusal": None},
        "logprobs": chat_logprobs(result.tokens) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def chat_logprobs(tokens: Sequence[Token]) -> dict[str, object]:
    """The chosen tokens with their log-probabilities."""
    told = [
        {
            "token": token.text,
            "logprob": _finite(token.logprob),
            "bytes": [*token.text.encode(errors="replace")],
            "top_logprobs": [],
        }
        for token in tokens
    ]
    return {"content": told, "refusal": None}


def _completion_choice(result: BatchResult, logprobs: bool) -> dict[str, object]:
    return {
        "index": 0,
        "text": result.text,
        "logprobs": completion_logprobs(result.tokens) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def completion_logprobs(tokens: Sequence[Token], begin: int = 0) -> dict[str, object]:
    """The tokens in columns; ``text_offset`` counts characters of the answer, from ``begin``."""
    offsets, end = [], begin
    for token in tokens:
        offsets.append(end)
        end += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": None,
        "text_offset": offsets,
    }


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else _IMPOSSIBLE
