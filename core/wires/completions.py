"""OpenAI's answers to chat completions and completions, made of what a model generated.

Source: https://platform.openai.com/docs/api-reference (``openai`` 3.57.0,
``types/chat/chat_completion.py``, ``types/completion.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.errors import GenerationCancelled
from core.types import BatchResult, FinishReason, Token
from core.wires.errors import OPENAI, refusal
from core.wires.generation import GenerationRequest
from core.wires.usage import Usage

Finish = Literal["stop", "length"]
_IMPOSSIBLE = -9999.0  # what OpenAI writes for a logprob that is next to minus infinity


@dataclass(frozen=True, slots=True)
class Beside:
    """What an answer tells beside what was generated.

    ``prompt`` are the prompt's tokens, where they are echoed with their log-probabilities, of which
    the first has none; ``likeliest`` the tokens that might have come first, the likeliest first.
    """

    prompt: Sequence[Token] = ()
    likeliest: Sequence[Token] = ()


NOTHING = Beside()


def finish_reason(reason: FinishReason) -> Finish:
    """Ours as theirs. What was cancelled or failed has no answer: that raises `WireError`."""
    if reason == "stop" or reason == "length":
        return reason
    raise refusal(OPENAI, GenerationCancelled(f"The generation ended with {reason!r}."))


def response(
    request: GenerationRequest,
    *results: BatchResult,
    id: str,
    created: int,
    model: str,
    usage: Usage | None = None,
    beside: Beside = NOTHING,
) -> dict[str, object]:
    """The body of a 200. Raises `WireError`, with the body of its status, for a row that failed.

    ``results`` are the answers, ``request.n`` of them; ``created`` is in seconds since 1970.
    Without ``usage``, the generated tokens are counted alone.
    """
    for result in results:
        if result.error is not None:
            raise refusal(OPENAI, result.error)
    make = _chat_choice if request.kind == "chat" else _completion_choice
    written = sum(len(result.tokens) for result in results)
    return {
        "id": id,
        "object": "chat.completion" if request.kind == "chat" else "text_completion",
        "created": created,
        "model": model,
        "choices": [make(request, beside, *each) for each in enumerate(results)],
        "usage": usage_body(usage or Usage(output_tokens=written)),
    }


def usage_body(usage: Usage) -> dict[str, object]:
    """``usage`` as both wires have it."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _chat_choice(
    request: GenerationRequest, beside: Beside, index: int, result: BatchResult
) -> dict[str, object]:
    logprobs = request.options.get("return_logprobs")
    return {
        "index": index,
        "message": {"role": "assistant", "content": result.text, "refusal": None},
        "logprobs": chat_logprobs(result.tokens, beside.likeliest) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def chat_logprobs(tokens: Sequence[Token], likeliest: Sequence[Token] = ()) -> dict[str, object]:
    """The chosen tokens with their log-probabilities; ``likeliest`` stand beside the first."""
    told = [{**_chat_token(token), "top_logprobs": []} for token in tokens]
    if told:
        told[0]["top_logprobs"] = [*map(_chat_token, likeliest)]
    return {"content": told, "refusal": None}


def _chat_token(token: Token) -> dict[str, object]:
    bytes_ = [*token.text.encode(errors="replace")]
    return {"token": token.text, "logprob": _finite(token.logprob), "bytes": bytes_}


def _completion_choice(
    request: GenerationRequest, beside: Beside, index: int, result: BatchResult
) -> dict[str, object]:
    tokens = [*beside.prompt, *result.tokens]
    logprobs = request.options.get("return_logprobs")
    return {
        "index": index,
        "text": (request.prompt if request.echo else "") + result.text,
        "logprobs": completion_logprobs(tokens, beside.likeliest) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def completion_logprobs(
    tokens: Sequence[Token], likeliest: Sequence[Token] = (), begin: int = 0
) -> dict[str, object]:
    """The tokens in columns; ``text_offset`` counts characters of the answer, from ``begin``.

    ``likeliest`` stand beside the first token, which is always among them.
    """
    offsets, end = [], begin
    for token in tokens:
        offsets.append(end)
        end += len(token.text)
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_known(token.logprob) for token in tokens],
        "top_logprobs": [_by_text([*tokens[:1], *likeliest])] if tokens and likeliest else None,
        "text_offset": offsets,
    }


def _by_text(tokens: Sequence[Token]) -> dict[str, float]:
    """Of tokens that read alike, the likeliest."""
    ordered = sorted(tokens, key=lambda token: _finite(token.logprob))
    return {token.text: _finite(token.logprob) for token in ordered}


def _known(logprob: float | None) -> float | None:
    return None if logprob is None else _finite(logprob)


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else _IMPOSSIBLE
