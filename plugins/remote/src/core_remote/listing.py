"""``GET /v1/models``, which servers of every kind have."""

from __future__ import annotations

from typing import Any

import msgspec

from core.clock import never_stop
from core_remote.connection import Connection


def listed_models(connection: Connection) -> list[dict[str, Any]]:
    """The models that a server lists; nothing of one without that route."""
    status, body = connection.get("/v1/models", never_stop)
    if status != 200:
        return []
    try:
        found = msgspec.json.decode(body)["data"]
        return [each for each in found if isinstance(each, dict)]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, UnicodeDecodeError):
        return []


def size_of(value: object) -> int:
    """A size that a listing tells; 1 where it does not, the least that there can be."""
    return value if isinstance(value, int) and value > 0 else 1
