"""Response bodies: JSON, and the events of a stream."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from core_server.access_log import note, note_failure
from core_wires.errors import Dialect, WireError, refusal

JSON = "application/json"
NDJSON = "application/x-ndjson"


def reply(body: object, status: int = 200) -> Response:
    """Return a body of JSON."""
    return Response(msgspec.json.encode(body), status, media_type=JSON)


def refused(dialect: Dialect, error: Exception) -> WireError:
    """Return an error in the format of its API, with its reason in the request log.

    An unexpected error is logged with its traceback.
    """
    wire_error = refusal(dialect, error)
    note(reason=str(wire_error))
    if wire_error.status == 500:
        note_failure(error)
    return wire_error


def error_reply(error: WireError) -> Response:
    """Return an error response in the format of its API, and note its reason."""
    note(reason=str(error))
    response = reply(error.body, error.status)
    if error.status in (429, 503):
        response.headers["Retry-After"] = "1"
    return response


def event(body: object) -> bytes:
    """Return an event of a stream (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
