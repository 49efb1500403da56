"""Bodies of answers: JSON, and the events of a stream."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from core.wires.errors import WireError

JSON = "application/json"
NDJSON = "application/x-ndjson"


def reply(body: object, status: int = 200) -> Response:
    """A body of JSON."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def error_reply(error: WireError) -> Response:
    """A refusal, as its wire has it."""
    response = reply(error.body, error.status)
    if error.status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response


def event(body: object) -> bytes:
    """One event of a stream (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
