"""Response bodies: JSON, and the events of a stream."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from core_wires.errors import WireError

JSON = "application/json"
NDJSON = "application/x-ndjson"


def reply(body: object, status: int = 200) -> Response:
    """Return a body of JSON."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def error_reply(error: WireError) -> Response:
    """Return an error response in the format of its API."""
    response = reply(error.body, error.status)
    if error.status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response


def event(body: object) -> bytes:
    """Return an event of a stream (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
