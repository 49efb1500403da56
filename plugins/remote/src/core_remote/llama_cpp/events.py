"""Answers of llama.cpp's server, as values.

Source: tools/server/README.md of https://github.com/ggml-org/llama.cpp, and its server-task.cpp,
as vendored by llama-cpp-python 0.3.36.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from core.errors import CoreError, PromptTooLongError, RequestError
from core_remote import failures
from core_remote.address import Address
from core_remote.failures import ServerError
from core_remote.listing import LARGEST, SLACK

T = TypeVar("T")

LEAST = -87.3
"""The lowest log-probability that the server reports exactly: it comes from a float32 above 0."""

_DATA = b"data:"
_IGNORED = (b":", b"event:", b"id:", b"retry:")
_TOO_LONG = "exceed_context_size_error"
_FAULTS = (400, 413, 422)  # of the request


_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # an int32 there
_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class Likely(msgspec.Struct, frozen=True):
    """A token and its natural-log probability, over the whole vocabulary, before any sampling.

    ``logprob`` is None where the server has computed NaN, for which JSON has null.
    """

    id: _Id
    logprob: float | None
    bytes: list[_Byte] = []

    def value(self) -> float:
        """Return the log-probability. Raises `core.RequestError` if it is impossible."""
        if self.logprob is None or self.logprob > SLACK:
            raise failures.not_finite(f"token {self.id}", self.logprob)
        return self.logprob


class DrawnToken(Likely, frozen=True):
    """The token that was drawn; ``top_logprobs`` are the likeliest ones, best first."""

    top_logprobs: list[Likely] = []


class Timings(msgspec.Struct, frozen=True):
    """Timings of a request. ``cache_n``: tokens of the prompt that were cached."""

    cache_n: _Count = 0


class Fault(msgspec.Struct, frozen=True):
    """An error of the server; the numbers are set if a prompt is too long."""

    code: int = 500
    message: str = ""
    type: str = ""
    n_prompt_tokens: _Count = 0
    n_ctx: _Count = 0


class Event(msgspec.Struct, frozen=True):
    """One event of a stream, or the complete answer of ``/completion``.

    ``tokens_predicted`` counts all tokens drawn until then, also those not reported in any event.
    """

    tokens: list[_Id] = []
    stop: bool = False
    stop_type: str = "none"
    tokens_predicted: _Count = 0
    completion_probabilities: list[DrawnToken] = []
    timings: Timings | None = None
    error: Fault | None = None


def event_of(line: bytes, address: Address) -> Event | None:
    """Return the event of a line; None for a line without content.

    Raises the error in it.
    """
    if line.startswith(_IGNORED):
        return None
    fault = line.startswith(b"error:")  # before 2025, errors had a line of their own
    if not fault and not line.startswith(_DATA):
        raise failures.nonsense(address, f"{line[:80]!r} is not an event")
    data = line.partition(b":")[2].strip()
    if data == b"[DONE]":
        return None
    if fault:
        raise fault_of(decoded(data, Fault, address), address)
    event = decoded(data, Event, address)
    if event.error is not None:
        raise fault_of(event.error, address)
    return event


def decoded(data: bytes, kind: type[T], address: Address) -> T:
    """Return an answer, checked. Raises `core.BackendProcessError` if it is invalid."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise failures.nonsense(address, f"{error} in {data[:80]!r}") from None


def refusal_of(status: int, body: bytes, address: Address) -> CoreError:
    """Return the error of an answer with a status other than 200."""
    try:
        fault = msgspec.json.decode(body, type=dict[str, Any])["error"]
        return fault_of(msgspec.convert(fault, Fault), address, status)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, RecursionError):
        error = failures.of_words(address, status, body)
        return error if isinstance(error, CoreError) else ServerError(str(error), status)


def fault_of(fault: Fault, address: Address, status: int = 0) -> CoreError:
    """Return the error for a fault; an invalid request is a `core.RequestError`."""
    code = status or fault.code
    if fault.type == _TOO_LONG and fault.n_ctx:
        return PromptTooLongError(fault.n_prompt_tokens, fault.n_ctx - 1)
    message = address.quoted(fault.message)[:300]
    words = f"The server at {address.base} refused the request ({code}: {message})."
    if code in _FAULTS:
        return RequestError(words)
    return ServerError(f"{words} The next call tries again.", code)


def matched(
    tokens: Sequence[int], readings: Sequence[DrawnToken], pieces: Sequence[bytes]
) -> list[DrawnToken | None]:
    """Return the reading of each token; None if the server omitted it.

    It omits a token at which the text ends inside a character.
    """
    if [reading.id for reading in readings] == [*tokens]:
        return [*readings]
    rest, matches = iter(readings), list[DrawnToken | None]()
    for whole in _whole(pieces):
        matches.append(next(rest, None) if whole else None)
    pairs = zip(matches, tokens, strict=True)
    agree = all(match is None or match.id == token for match, token in pairs)
    if not agree or next(rest, None) is not None:
        return [None] * len(tokens)
    return matches


def _whole(pieces: Iterable[bytes]) -> list[bool]:
    """Return for each piece whether the text until there ends with a complete character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    complete = []
    for piece in pieces:
        decoder.decode(piece)
        complete.append(not decoder.getstate()[0])
    return complete
