"""Errors for what a server, or the way to it, does wrong. No message holds a key."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import httpx

from core.errors import (
    BackendProcessError,
    CoreError,
    ModelAccessError,
    ModelNotFoundError,
    PromptTooLongError,
    RequestError,
)
from core.wires.plain import error_of
from core_remote.address import Address

_FAULTS = (400, 413, 422)  # of the request
_NOT_FOUND = 404

# "maximum context length is 512 tokens. However, you requested 616 tokens (600 in your prompt",
# "Requested tokens (600) exceed context window of 512": llama-cpp-python's words, and vLLM's.
_LIMIT = re.compile(r"context (?:length|window)[^0-9]*(\d{1,15})", re.IGNORECASE)
_LENGTH = re.compile(r"(\d{1,15}) (?:tokens )?(?:in|from) (?:your prompt|the messages|the input)")
_SECONDS = re.compile(r"[0-9]{1,7}")  # up to a few months
_NUMBER = re.compile(r"\d{1,15}")
_SHOWN = 300  # characters of a server's own words
_GIVE_KEY = "Give its key as options={'api_key': ...}, or in CORE_REMOTE_API_KEY."
_NEXT = "The next call asks it again."


class ServerError(BackendProcessError):
    """A server refused, died, fell silent or spoke nonsense.

    Attributes: ``status``, that of its answer, 0 where there was none; ``retry_after``, the seconds
    after which it wants to be asked again, None where it does not say.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


class ServerBusyError(ServerError):
    """The server has as many requests as it takes (429, 503)."""


def unreachable(address: Address, error: Exception) -> ServerError:
    """No connection was made, or it was lost."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        what = "cannot be reached"
    elif isinstance(error, httpx.TimeoutException):
        what = "took nothing more of the request"
    elif isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        what = "is no address that can be asked"
    else:
        what = "broke the connection off"
    words = address.quoted(str(error)) or type(error).__name__
    return ServerError(f"The server at {address.base} {what} ({words}). {_NEXT}")


def died(address: Address) -> ServerError:
    """The answer ended before its last line."""
    return ServerError(
        f"The server at {address.base} broke its answer off: it has died, or was stopped. {_NEXT}"
    )


def silent(address: Address, seconds: float) -> ServerError:
    """Nothing whole came for too long."""
    return ServerError(
        f"The server at {address.base} sent no whole line for {seconds:g} s, and was left. Where "
        "that is not long enough for this model, raise options={'silence_timeout': seconds}. "
        f"{_NEXT}"
    )


def not_finite(token: str, logprob: float | None) -> RequestError:
    """Return the error of a row for which the server's model computes NaN or infinity."""
    return RequestError(
        f"The server gives {token} the log-probability {logprob}: its model computes NaN or "
        "infinity for this prompt. Check the model there: its weights are broken, or overflow."
    )


def nonsense(address: Address, what: str) -> ServerError:
    """Return the error for an answer that its wire does not know, or that cannot be."""
    what = address.quoted(what)
    return ServerError(f"The server at {address.base} sent what is no answer: {what}. {_NEXT}")


def impossible(address: Address, what: str) -> RequestError:
    """Return the error of a row whose answer does not fit what was asked."""
    return RequestError(
        f"The server at {address.base} sent an answer that cannot be: {address.quoted(what)}. "
        "Check the server and its model; nothing of this row's answer was used."
    )


def stopped_there(address: Address, error: CoreError) -> RequestError:
    """Return the error of a row that the server cancelled, and nobody here."""
    return RequestError(f"The server at {address.base} cancelled the request: {error}")


def refused(address: Address, response: httpx.Response, body: bytes) -> Exception:
    """The error of an answer that is no 200."""
    status, told = response.status_code, _told(address, body)
    who = f"The server at {address.base}"
    if 300 <= status < 400:
        elsewhere = _place(response.headers.get("location", ""))
        return ServerError(
            f"{who} says that what was asked for is at {elsewhere}. No request, and no key, is "
            "sent on to another place: load the model from there, if you know it.",
            status,
        )
    if status in (401, 403):
        return ModelAccessError(f"{who} refuses the request ({status}{told}). {_GIVE_KEY}")
    if status in (429, 503):
        after = _seconds(response.headers.get("retry-after", ""))
        when = "later" if after is None else f"in {after:g} s"
        return ServerBusyError(
            f"{who} takes no more requests ({status}{told}). Ask again {when}.", status, after
        )
    return ServerError(f"{who} answered {status}{told}. {_NEXT}", status)


def of_request(response: httpx.Response, body: bytes, address: Address) -> Exception:
    """The same; what is the request's own fault is a `core.RequestError`, as of any backend."""
    if response.status_code in _FAULTS:
        return of_words(address, response.status_code, body)
    return refused(address, response, body)


def of_words(address: Address, status: int, body: bytes) -> Exception:
    """The error of a request that was refused, by what the server says of it."""
    words = _words(address, body)
    limit = _LIMIT.search(words)
    if status in _FAULTS and limit is not None:
        length = _LENGTH.search(words)
        most = max(map(int, _NUMBER.findall(words)))
        return PromptTooLongError(int(length[1]) if length else most, int(limit[1]))
    told = f": {words}" if words else ""
    if status not in _FAULTS:
        return ServerError(f"The server at {address.base} answered {status}{told}. {_NEXT}", status)
    return RequestError(f"The server at {address.base} refuses the request ({status}{told}).")


def missing_model(address: Address, names: list[str]) -> ModelNotFoundError:
    """The server has no model of this name."""
    there = ", ".join(map(repr, names)) or "none"
    return ModelNotFoundError(
        f"The server at {address.base} serves no model {address.model!r}. It has: {there}."
    )


def unanswered(address: Address, status: int, body: bytes) -> Exception:
    """It gives no text in any way that is known here; it may lack a model that it does not list."""
    told = f"{status}{_told(address, body)}"
    if address.model and status == _NOT_FOUND:
        return ModelNotFoundError(
            f"The server at {address.base} gives no text of a model {address.model!r} ({told})."
        )
    return ServerError(
        f"The server at {address.base} answers neither /v1/completions nor /v1/chat/completions "
        f"({told}): its model did not load, or it speaks no wire that is known here.",
        status,
    )


def from_wire(address: Address, data: object) -> CoreError:
    """Return the error that a line of core's own wire holds."""
    try:
        return quoted(address, error_of(data))
    except ValueError as error:
        return nonsense(address, str(error))


def quoted(address: Address, error: CoreError) -> CoreError:
    """Return an error that was made on the server, its words as `Address.quoted` has them."""
    error.args = tuple(address.quoted(it) if isinstance(it, str) else it for it in error.args)
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, address.quoted(value))
    return error


def gave_up(address: Address, words: str) -> RequestError:
    """Return the error that a server sends in the middle of an answer."""
    return RequestError(f"The server at {address.base} gave up: {address.quoted(words)[:_SHOWN]}")


def _words(address: Address, body: bytes) -> str:
    """Return what the body of a refusal says: OpenAI's shape, FastAPI's, or its beginning."""
    return address.quoted(_text(body))[:_SHOWN]


def _text(body: bytes) -> str:
    import msgspec

    text = body[: 4 * _SHOWN].decode(errors="replace").strip()
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return text
    for name in ("error", "detail", "message"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else text


def _told(address: Address, body: bytes) -> str:
    words = _words(address, body)
    return f": {words}" if words else ""


def _place(location: str) -> str:
    """The host of a redirect: its path and its query may hold what is nobody's business."""
    host = urlsplit(location).hostname if location else None
    return repr(host) if host else "another path"


def _seconds(text: str) -> float | None:
    """Return the seconds that a header asks for; None for what is not such a number."""
    return float(text) if _SECONDS.fullmatch(text) else None
