"""Errors of a server and of the connection to it. No message holds a key."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from core_remote.address import Address
from core_wires.plain import error_of

_FAULTS = (400, 413, 422)  # of the request
_NOT_FOUND = 404

# "maximum context length is 512 tokens. However, you requested 616 tokens (600 in your prompt",
# "Requested tokens (600) exceed context window of 512": of llama-cpp-python and vLLM.
_LIMIT = re.compile(r"context (?:length|window)[^0-9]*(\d{1,15})", re.IGNORECASE)
_LENGTH = re.compile(r"(\d{1,15}) (?:tokens )?(?:in|from) (?:your prompt|the messages|the input)")
_SECONDS = re.compile(r"[0-9]{1,7}")  # up to a few months
_NUMBER = re.compile(r"\d{1,15}")
_SHOWN = 300  # characters of a server's message
_NAMED = 20  # models that a message lists
_GIVE_KEY = "Set the API key with options={'api_key': ...} or CORE_REMOTE_API_KEY."
_NEXT = "The next call tries again."


class ServerError(BackendProcessError):
    """A failure of a server: it refused, died, was silent, or sent an invalid answer.

    Attributes: ``status``, the HTTP status, 0 without an answer; ``retry_after``, the seconds after
    which to retry, None if the server does not say.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


class ServerBusyError(ServerError):
    """The error of a server with too many requests (429, 503)."""


def unreachable(address: Address, error: Exception) -> ServerError:
    """Return the error of a connection that failed or was lost."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        what = "cannot be reached"
    elif isinstance(error, httpx.TimeoutException):
        what = "stopped reading the request"
    elif isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        what = "has an invalid address"
    else:
        what = "closed the connection"
    words = address.quoted(str(error)) or type(error).__name__
    return ServerError(f"The server at {address.base} {what} ({words}). {_NEXT}")


def died(address: Address) -> ServerError:
    """Return the error of an answer that ended before its last line."""
    return ServerError(
        f"The server at {address.base} ended its answer early: it died or was stopped. {_NEXT}"
    )


def silent(address: Address, seconds: float) -> ServerError:
    """Return the error of a server that sent no complete line for too long."""
    return ServerError(
        f"The server at {address.base} sent no complete line for {seconds:g} s. If this model "
        "needs longer, increase options={'silence_timeout': seconds}. "
        f"{_NEXT}"
    )


def not_finite(token: str, logprob: float | None) -> RequestError:
    """Return the error of a row for which the server's model computes NaN or infinity."""
    return RequestError(
        f"The server reported the log-probability {logprob} for {token}: its model computes NaN "
        "or infinity for this prompt. Check the model there: its weights are broken, or overflow."
    )


def nonsense(address: Address, what: str) -> ServerError:
    """Return the error of an answer that does not follow its API, or is impossible."""
    what = address.quoted(what)
    return ServerError(f"The server at {address.base} sent an invalid answer: {what}. {_NEXT}")


def impossible(address: Address, what: str) -> RequestError:
    """Return the error of a row whose answer does not fit the request."""
    return RequestError(
        f"The server at {address.base} sent an impossible answer: {address.quoted(what)}. "
        "Check the server and its model; this row's answer was discarded."
    )


def stopped_there(address: Address, error: CoreError) -> RequestError:
    """Return the error of a row that the server cancelled, not the caller."""
    return RequestError(f"The server at {address.base} cancelled the request: {error}")


def refused(address: Address, response: httpx.Response, body: bytes) -> Exception:
    """Return the error of an answer with a status other than 200."""
    status, shown = response.status_code, _message(address, body)
    who = f"The server at {address.base}"
    if 300 <= status < 400:
        elsewhere = _place(response.headers.get("location", ""))
        return ServerError(
            f"{who} redirected the request to {elsewhere}. Redirects are not followed, so that the "
            "API key is not leaked. If you trust that address, load the model from it.",
            status,
        )
    if status in (401, 403):
        return ModelAccessError(f"{who} refused the request ({status}{shown}). {_GIVE_KEY}")
    if status in (429, 503):
        after = _seconds(response.headers.get("retry-after", ""))
        when = "later" if after is None else f"in {after:g} s"
        return ServerBusyError(
            f"{who} has too many requests ({status}{shown}). Retry {when}.", status, after
        )
    return ServerError(f"{who} answered {status}{shown}. {_NEXT}", status)


def of_request(response: httpx.Response, body: bytes, address: Address) -> Exception:
    """Return the same; an invalid request is a `core.RequestError`, as for any backend."""
    if response.status_code in _FAULTS:
        return of_words(address, response.status_code, body)
    return refused(address, response, body)


def of_words(address: Address, status: int, body: bytes) -> Exception:
    """Return the error of a refused request, from the server's message."""
    words = _words(address, body)
    limit = _LIMIT.search(words)
    if status in _FAULTS and limit is not None:
        length = _LENGTH.search(words)
        most = max(map(int, _NUMBER.findall(words)))
        return PromptTooLongError(int(length[1]) if length else most, int(limit[1]))
    message = f": {words}" if words else ""
    if status not in _FAULTS:
        return ServerError(
            f"The server at {address.base} answered {status}{message}. {_NEXT}", status
        )
    return RequestError(f"The server at {address.base} refused the request ({status}{message}).")


def missing_model(address: Address, names: list[str]) -> ModelNotFoundError:
    """Return the error of a server without a model of this name."""
    listed = [repr(address.quoted(name)) for name in names[:_NAMED]]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    there = ", ".join([*listed, *more]) or "none"
    return ModelNotFoundError(
        f"Unknown model {address.model!r} on the server at {address.base}. Available: {there}."
    )


def unanswered(address: Address, status: int, body: bytes) -> Exception:
    """Return the error of a server without a supported API, or without the requested model."""
    answer = f"{status}{_message(address, body)}"
    if address.model and status == _NOT_FOUND:
        return ModelNotFoundError(
            f"The server at {address.base} returned no text for model {address.model!r} ({answer})."
        )
    return ServerError(
        f"The server at {address.base} answers neither /v1/completions nor /v1/chat/completions "
        f"({answer}): its model did not load, or its API is not supported.",
        status,
    )


def from_wire(address: Address, data: object) -> CoreError:
    """Return the error in a line of core's API."""
    try:
        return quoted(address, error_of(data))
    except ValueError as error:
        return nonsense(address, str(error))


def quoted(address: Address, error: CoreError) -> CoreError:
    """Return an error of the server, with its texts as `Address.quoted` returns them."""
    error.args = tuple(_quoted(address, argument) for argument in error.args)
    for name, value in vars(error).items():  # names that a server chose, "__class__" perhaps
        if not isinstance(value, Exception):
            vars(error)[name] = _quoted(address, value)
    return error


def _quoted(address: Address, value: object) -> object:
    """Return a value with all texts in it quoted."""
    if isinstance(value, str):
        return address.quoted(value)
    if isinstance(value, Mapping):
        return {_quoted(address, name): _quoted(address, part) for name, part in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return type(value)(_quoted(address, part) for part in value)
    return value


def gave_up(address: Address, words: str) -> RequestError:
    """Return the error that a server sends in the middle of an answer."""
    message = address.quoted(words)[:_SHOWN]
    return RequestError(f"The server at {address.base} failed during the answer: {message}")


def _words(address: Address, body: bytes) -> str:
    """Return the message in a refusal's body (OpenAI's or FastAPI's format), or its beginning."""
    return address.quoted(_text(body))[:_SHOWN]


def _text(body: bytes) -> str:
    import msgspec

    text = body[: 4 * _SHOWN].decode(errors="replace").strip()
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return text
    for name in ("error", "detail", "message"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    return content if isinstance(content, str) else text


def _message(address: Address, body: bytes) -> str:
    words = _words(address, body)
    return f": {words}" if words else ""


def _place(location: str) -> str:
    """Return the host of a redirect; its path and query may hold secrets."""
    host = urlsplit(location).hostname if location else None
    return repr(host) if host else "another path"


def _seconds(text: str) -> float | None:
    """Return the seconds in a header; None if it is not such a number."""
    return float(text) if _SECONDS.fullmatch(text) else None
