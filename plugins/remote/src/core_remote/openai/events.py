"""The events of OpenAI's streams, and the tokens in them.

Source: https://platform.openai.com/docs/api-reference/completions-streaming, and what
llama-cpp-python 0.3.36 and mlx_lm.server 0.32.2 send. The API has texts, not tokens: each piece
that a server sends counts as one token, unless its log-probabilities name several.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import msgspec

from core.types import FinishReason, Token
from core_remote import failures
from core_remote.address import Address
from core_remote.listing import LARGEST, SLACK

_DATA, _DONE = b"data:", b"[DONE]"
_decoder = msgspec.json.Decoder()


ID_BITS = 48
"""The number of ids for texts."""


def id_of(text: str) -> int:
    """Return an id for the text of a token: the API has none, and equal texts have equal ids.

    It is a digest, the same in every process, not an id of the model's vocabulary.
    `core.GenerateConfig.stop_tokens` may name it.
    """
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=ID_BITS // 8)
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True)
class Piece:
    """The content of one event. ``reason`` ends the text; the usage may follow it."""

    text: str = ""
    logprobs: tuple[tuple[str, float | None], ...] = ()
    reason: FinishReason | None = None
    prompt_tokens: int | None = None
    cached_tokens: int = 0
    generated_tokens: int = 0
    done: bool = False


def piece_of(line: bytes, address: Address) -> Piece | None:
    """Return the content of a line; None for a line without any, such as a comment.

    Raises the error in it.
    """
    if not line.startswith(_DATA):
        if line.startswith((b":", b"event:", b"id:", b"retry:")):
            return None
        raise failures.nonsense(address, f"{line[:80]!r} is not an event")
    data = line[len(_DATA) :].strip()
    if data == _DONE:
        return Piece(done=True)
    try:
        return _piece(_decoded(data), address)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise failures.nonsense(address, f"{error} in {data[:80]!r}") from None
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError):
        raise failures.nonsense(address, f"{data[:80]!r} is not an event of OpenAI's API") from None


def _decoded(data: bytes) -> Any:
    """Return the JSON value; NaN and Infinity, which Python's json writes, are accepted."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)


def prompt_tokens(body: bytes) -> int:
    """Return the prompt's tokens as reported in an answer (not a stream); 0 if they are missing."""
    try:
        count = _decoder.decode(body)["usage"]["prompt_tokens"]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, KeyError, TypeError):
        return 0
    return _count(count) or 0


def _piece(event: Any, address: Address) -> Piece:
    if "error" in event:
        words = event["error"]
        message = words.get("message", "") if isinstance(words, Mapping) else str(words)
        raise failures.gave_up(address, str(message))
    usage = event.get("usage") or {}
    counted = Piece(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count((usage.get("prompt_tokens_details") or {}).get("cached_tokens")) or 0,
        generated_tokens=_count(usage.get("completion_tokens")) or 0,
    )
    if not event["choices"]:
        return counted
    choice = event["choices"][0]
    delta = choice.get("delta") or {}
    text = choice.get("text", delta.get("content")) or ""
    if not isinstance(text, str):
        raise TypeError
    return replace(
        counted,
        text=text,
        logprobs=_logprobs(choice.get("logprobs")),
        reason=_reason(choice.get("finish_reason")),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value <= LARGEST else None


def _reason(reason: object) -> FinishReason | None:
    if reason is None:
        return None
    return "length" if reason == "length" else "stop"


def _logprobs(data: Any) -> tuple[tuple[str, float | None], ...]:
    """Return texts and log-probabilities, of completions (lists) or of chats (``content``)."""
    if not data:
        return ()
    if data.get("content") is not None:
        pairs = [(token["token"], _number(token["logprob"])) for token in data["content"]]
    else:
        texts, values = data.get("tokens") or (), data.get("token_logprobs") or ()
        pairs = [*zip(texts, map(_number, values), strict=True)]
    if not all(isinstance(text, str) for text, _ in pairs):
        raise TypeError
    return tuple(pairs)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def tokens_of(piece: Piece, with_logprobs: bool) -> Sequence[Token]:
    """Return the tokens of a piece, with their log-probabilities if requested.

    Raises `core.RequestError` for a log-probability that is null, NaN or infinite.
    """
    if not piece.text:
        return ()
    if not (with_logprobs and piece.logprobs):
        return (Token(id_of(piece.text), piece.text),)
    pairs = [(text, _finite(text, value)) for text, value in piece.logprobs]
    if "".join(text for text, _ in pairs) == piece.text:
        return tuple(Token(id_of(text), text, value) for text, value in pairs)
    total = sum(value for _, value in pairs)  # of several that make one character, say
    return (Token(id_of(piece.text), piece.text, total),)


def _finite(text: str, value: float | None) -> float:
    if value is None or not math.isfinite(value) or value > SLACK:
        raise failures.not_finite(f"the token {text!r:.60}", value)
    return value
