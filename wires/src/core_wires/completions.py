"""OpenAI's answers to chat completions and completions, made from a model's results.

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
from core_wires.errors import OPENAI, refusal
from core_wires.generation import GenerationRequest
from core_wires.usage import Usage

Finish = Literal["stop", "length"]
_IMPOSSIBLE = -9999.0  # OpenAI's value for log-probabilities close to minus infinity


@dataclass(frozen=True, slots=True)
class Extras:
    """Additional contents of an answer.

    ``prompt`` are the prompt's tokens if they are echoed with their log-probabilities, which the
    first lacks; ``likeliest`` the candidates for the first token, the likeliest first.
    """

    prompt: Sequence[Token] = ()
    likeliest: Sequence[Token] = ()


NO_EXTRAS = Extras()


def extras_of(extras: Sequence[Extras], request: GenerationRequest, index: int) -> Extras:
    """Return the extras of an answer: those of its prompt."""
    return extras[index // request.n] if extras else NO_EXTRAS


def finish_reason(reason: FinishReason) -> Finish:
    """Return the finish reason in OpenAI's terms. Raises `WireError` for cancelled and failed."""
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
    extras: Sequence[Extras] = (),
) -> dict[str, object]:
    """Return the body of a 200. Raises `WireError`, with the body of its status, for a failed row.

    ``results`` are the ``request.answers``, with ``extras`` for each prompt, if any; ``created`` is
    in seconds since 1970. Without ``usage``, only the generated tokens are counted.
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
        "choices": [
            make(request, extras_of(extras, request, n), n, result)
            for n, result in enumerate(results)
        ],
        "usage": usage_body(usage or Usage(output_tokens=written)),
    }


def usage_body(usage: Usage) -> dict[str, object]:
    """Return ``usage`` in the format of both endpoints."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _chat_choice(
    request: GenerationRequest, extras: Extras, index: int, result: BatchResult
) -> dict[str, object]:
    logprobs = request.options.get("return_logprobs")
    return {
        "index": index,
        "message": {"role": "assistant", "content": result.text, "refusal": None},
        "logprobs": chat_logprobs(result.tokens, extras.likeliest) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def chat_logprobs(tokens: Sequence[Token], likeliest: Sequence[Token] = ()) -> dict[str, object]:
    """Return the chosen tokens with their log-probabilities.

    ``likeliest`` are added to the first.
    """
    content = [{**_chat_token(token), "top_logprobs": []} for token in tokens]
    if content:
        content[0]["top_logprobs"] = [*map(_chat_token, likeliest)]
    return {"content": content, "refusal": None}


def _chat_token(token: Token) -> dict[str, object]:
    bytes_ = [*token.text.encode(errors="replace")]
    return {"token": token.text, "logprob": _finite(token.logprob), "bytes": bytes_}


def _completion_choice(
    request: GenerationRequest, extras: Extras, index: int, result: BatchResult
) -> dict[str, object]:
    tokens = [*extras.prompt, *result.tokens]
    logprobs = request.options.get("return_logprobs")
    return {
        "index": index,
        "text": (request.prompts[index // request.n] if request.echo else "") + result.text,
        "logprobs": completion_logprobs(tokens, extras.likeliest) if logprobs else None,
        "finish_reason": finish_reason(result.finish_reason),
    }


def completion_logprobs(
    tokens: Sequence[Token], likeliest: Sequence[Token] = (), begin: int = 0
) -> dict[str, object]:
    """Return the tokens in columns.

    ``text_offset`` counts characters of the answer, from ``begin``. ``likeliest`` are added to the
    first token, which is always among them.
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
    """Return the likeliest of tokens with equal texts."""
    ordered = sorted(tokens, key=lambda token: _finite(token.logprob))
    return {token.text: _finite(token.logprob) for token in ordered}


def _known(logprob: float | None) -> float | None:
    return None if logprob is None else _finite(logprob)


def _finite(logprob: float | None) -> float:
    return logprob if logprob is not None and math.isfinite(logprob) else _IMPOSSIBLE
