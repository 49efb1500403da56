"""The request log: an id for each request, and one line when it has ended.

A line has the id, method, path, status, duration, and as far as they apply the rows, the tokens of
prompts and of answers, and the reason of a refusal. Reasons may quote a few words of a request;
texts and answers are not logged. ``infer-cli serve`` writes the log to stderr; an application that
embeds the server configures the loggers ``core_server.access`` and ``core_server.errors``.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core_wires.usage import Usage

_ACCESS, _ERRORS = logging.getLogger("core_server.access"), logging.getLogger("core_server.errors")
ID_HEADER = "X-Request-Id"
_ID = re.compile(r"[!-~]{1,128}")  # visible ASCII: a line has no room for anything else
_MOST_PATH, _MOST_REASON = 200, 300  # characters
_PROBES = ("/health", "/metrics")  # monitoring sends these all the time


@dataclass(slots=True)
class RequestFacts:
    """The facts of one request for its line in the log."""

    id: str
    method: str
    path: str
    begun: float = field(default_factory=time.perf_counter)
    status: int = 0
    rows: int = 0
    usage: Usage = field(default_factory=Usage)
    reason: str = ""
    complete: bool = False

    def line(self) -> str:
        """Return the line; control characters in it are escaped."""
        parts = [self.id, self.method, self.path[:_MOST_PATH], str(self.status)]
        parts.append(f"{1000 * (time.perf_counter() - self.begun):.1f}ms")
        if self.rows:
            parts.append(f"rows={self.rows}")
        if self.usage.total_tokens:
            parts.append(f"tokens={self.usage.input_tokens}+{self.usage.output_tokens}")
        if self.reason:
            parts.append(f"reason={self.reason[:_MOST_REASON]!r}")
        return " ".join(part.encode("unicode_escape").decode() for part in parts)

    @property
    def level(self) -> int:
        """The level of the line: that of an error, a refusal, an answer, or a probe."""
        if self.status >= 500:
            return logging.ERROR
        if self.status >= 400 or self.reason:
            return logging.WARNING
        return logging.DEBUG if self.path in _PROBES else logging.INFO


_CURRENT: ContextVar[RequestFacts | None] = ContextVar("facts of this request", default=None)


def note(rows: int = 0, usage: Usage | None = None, reason: str = "") -> None:
    """Add facts about the current request, if there is one, to its line."""
    facts = _CURRENT.get()
    if facts is None:
        return
    facts.rows += rows
    facts.reason = facts.reason or reason
    if usage is not None:
        facts.usage = Usage(
            facts.usage.input_tokens + usage.input_tokens,
            facts.usage.cached_tokens + usage.cached_tokens,
            facts.usage.output_tokens + usage.output_tokens,
        )


def note_failure(error: Exception) -> None:
    """Log an unexpected error with its traceback: the client gets nothing but its type."""
    facts = _CURRENT.get()
    _ERRORS.error("%s failed", "A request" if facts is None else facts.id, exc_info=error)


class AccessLog:
    """ASGI middleware that logs and counts all requests, also those refused before any route.

    A client's ``X-Request-Id`` is used, if valid, and returned; otherwise a new id is.
    ``answers`` counts them by status.
    """

    def __init__(self, app: ASGIApp, answers: Counter[int]) -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and log it once its answer is sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        facts = RequestFacts(_id(scope), scope["method"], scope["path"])
        token = _CURRENT.set(facts)

        async def noted(message: Message) -> None:
            self._note(facts, message)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            facts.status = 500
            raise
        finally:
            _CURRENT.reset(token)
            if not facts.complete:
                facts.reason = facts.reason or "the answer was not read to its end"
            if _ACCESS.isEnabledFor(facts.level):
                _ACCESS.log(facts.level, "%s", facts.line())

    def _note(self, facts: RequestFacts, message: Message) -> None:
        if message["type"] == "http.response.start":
            facts.status = message["status"]
            self._answers[facts.status] += 1
            MutableHeaders(scope=message).setdefault(ID_HEADER, facts.id)
        elif not message.get("more_body", False):
            facts.complete = True


def _id(scope: Scope) -> str:
    given = Headers(scope=scope).get(ID_HEADER, "")
    return given if _ID.fullmatch(given) else uuid.uuid4().hex


def configuration(level: str, *, access: bool) -> dict[str, Any]:
    """Return the `logging.config.dictConfig` of a server: everything to stderr, with the time."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "format": "%(asctime)s.%(msecs)03d %(levelname)s %(message)s",
                "datefmt": "%Y-%m-%dT%H:%M:%S",
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {
            "uvicorn": {"handlers": ["stderr"], "level": level, "propagate": False},
            "uvicorn.error": {"level": level},
            "core_server": {"handlers": ["stderr"], "level": level, "propagate": False},
            "core_server.access": {"level": level if access else "CRITICAL"},
        },
    }
