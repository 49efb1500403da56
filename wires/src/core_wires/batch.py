"""Lines of OpenAI's batch files, and the lines that answer them.

Source: https://platform.openai.com/docs/guides/batch. A line names its endpoint; in addition to
OpenAI's batch endpoints, the two for decisions are supported. A line that cannot be read keeps its
``custom_id``, if it has one, so that its error can be identified.

Ids are hashes of their contents: a repeated job writes the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from core_wires import decisions, generation, systemone
from core_wires.errors import OPENAI, SYSTEM_ONE, Dialect, WireError
from core_wires.generation import GenerationRequest
from core_wires.questions import Answer, DecisionRequest
from core_wires.usage import Usage
from core_wires.values import Value, bounded, parsed

Request: TypeAlias = GenerationRequest | DecisionRequest

READERS: Mapping[str, Callable[[object], Request]] = {
    "/v1/chat/completions": generation.read_chat,
    "/v1/completions": generation.read_completion,
    "/v1/decisions": decisions.read,
    "/v1/systemone": systemone.read,
}
"""The reader of each endpoint's bodies. Each only raises `WireError`."""
_FIELDS = {"custom_id", "method", "url", "body"}


@dataclass(frozen=True, slots=True)
class Line:
    """One request of a file, or the error that its answer reports.

    ``url`` is "" if it could not be read.
    """

    custom_id: str | None
    url: str = ""
    request: Request | None = None
    error: WireError | None = None


def dialect(url: str) -> Dialect:
    """Return the error format of the endpoint."""
    return SYSTEM_ONE if url == "/v1/systemone" else OPENAI


def read(line: str | bytes | Mapping[str, object]) -> Line:
    """Read one line, as text or parsed. Does not raise: a failure is the line's ``error``."""
    custom_id, url = None, ""
    try:
        value = bounded(parsed(line, OPENAI) if isinstance(line, str | bytes) else line, OPENAI)
        custom_id = _custom_id(value)
        value.only(_FIELDS)
        url = _url(value)
        request = READERS[url](value.need("body").fields())
        if isinstance(request, GenerationRequest):
            _check_whole(request)
    except WireError as error:
        return Line(custom_id, url, error=error)
    return Line(custom_id, url, request)


def _check_whole(request: GenerationRequest) -> None:
    """Raise `WireError` for options that only a server supports: a line has one complete answer."""
    chat = request.kind == "chat"
    server_only = {
        "stream": request.stream,
        "n": request.n > 1,
        "prompt": len(request.prompts) > 1,
        "echo": request.echo,
        "top_logprobs" if chat else "logprobs": request.likeliest > 0,
    }
    for name, is_set in server_only.items():
        if is_set:
            message = "A batch line has one complete answer. Remove this field."
            raise Value(True, (name,), OPENAI).wrong(message, "unsupported_value")


def _custom_id(line: Value) -> str:
    name = line.need("custom_id")
    if isinstance(name.data, int) and not isinstance(name.data, bool):
        return str(name.data)  # as many scripts write it
    return name.text(empty=False)


def _url(line: Value) -> str:
    method, url = line.get("method"), line.need("url")
    if method is not None and method.text() != "POST":
        raise method.wrong("Only POST is supported.", "invalid_method")
    if url.text() not in READERS:
        raise url.wrong(f"Unknown endpoint. Supported: {', '.join(READERS)}.", "invalid_url")
    return url.text()


# --------------------------------------------------------------------------- answers


def decided(
    request: DecisionRequest, answers: Sequence[Answer], *, model: str, usage: Usage | None = None
) -> dict[str, object]:
    """Return the body that answers a decision, in the format of its request."""
    respond = systemone.response if request.wire == "systemone" else decisions.response
    return respond(request, answers, model=model, usage=usage)


def answered(
    custom_id: str | None, body: Mapping[str, object], *, id: str, status: int = 200
) -> dict[str, object]:
    """Return the line of a request that its endpoint answered, possibly with an error."""
    reply = {"status_code": status, "request_id": id, "body": dict(body)}
    return {"id": f"batch_{id}", "custom_id": custom_id, "response": reply, "error": None}


def refused(custom_id: str | None, error: WireError, *, id: str) -> dict[str, object]:
    """Return the line of a rejected request, with the status and body that a server would send."""
    return answered(custom_id, error.body, id=id, status=error.status)


def unanswered(custom_id: str | None, code: str, message: str, *, id: str) -> dict[str, object]:
    """Return the line of a request that did not run, such as one after the end of a job."""
    error = {"code": code, "message": message}
    return {"id": f"batch_{id}", "custom_id": custom_id, "response": None, "error": error}


def stable_id(kind: str, *parts: object) -> str:
    """Return ``kind-`` and 24 hexadecimal digits: a hash of the parts."""
    text = "\x1f".join(map(str, parts))
    return f"{kind}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:24]}"
