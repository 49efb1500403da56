"""``GET /v1/models``, which servers of every kind have."""

from __future__ import annotations

from typing import Any

import msgspec

from core.kit.base import never_stop
from core_remote.connection import Connection

LARGEST = 2**53
"""Larger integers are not exact in JSON, and are not the size of any model."""

SLACK = 1e-3
"""A log-probability above 0 by at most this much is a rounding error."""


def listed_models(connection: Connection) -> list[dict[str, Any]]:
    """Return the models that a server lists; none without that route."""
    status, body = connection.get("/v1/models", never_stop)
    if status != 200:
        return []
    try:
        models = msgspec.json.decode(body)["data"]
        return [model for model in models if isinstance(model, dict)]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, UnicodeDecodeError):
        return []


def size_of(*values: object, unknown: int = 1) -> int:
    """Return the first value that can be a size, else ``unknown``."""
    return next(
        (it for it in values if type(it) is int and 0 < it <= LARGEST),
        unknown,
    )
