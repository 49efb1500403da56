"""Checks before every route: the host name of the request, and the server's key."""

from __future__ import annotations

import hmac
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from core.secret import Secret
from core_server.page import PATHS
from core_server.replies import error_reply
from core_server.settings import Settings
from core_wires.errors import OPENAI, SYSTEM_ONE, WireError

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_FOREIGN = ("cross-site", "same-site")  # https://www.w3.org/TR/fetch-metadata/
_OPEN = PATHS | {"/health"}  # the page has a field for the key; health checks have no key


class Guard:
    """ASGI middleware that refuses requests for another host, from other sites, or without the key.

    The host: a page in a browser can have its own host name resolve to this machine's loopback,
    and would then read answers as if it came from here (DNS rebinding). With the right host it
    could read nothing, but keep the model busy: browsers mark such requests as cross-site.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._hosts = app, settings.hosts
        self._key = None if settings.api_key is None else Secret(settings.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "http":
            refused = self._refusal(scope["path"], Headers(scope=scope))
            if refused is not None:
                await error_reply(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> WireError | None:
        dialect = SYSTEM_ONE if path == "/v1/systemone" else OPENAI
        if self._hosts and _name(headers.get("host", "")) not in self._hosts:
            message = "Host not allowed. Use the server's address, for example 127.0.0.1."
            return dialect.failed(403, "forbidden", message)
        if self._hosts and path not in _OPEN and headers.get("sec-fetch-site") in _FOREIGN:
            return dialect.failed(403, "forbidden", "Cross-site requests are not allowed.")
        if self._key is None or path in _OPEN:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # A header is Latin-1. The comparison takes constant time, which reveals nothing of the key.
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._key.reveal().encode())
        if same and scheme.lower() == "bearer":
            return None
        message = "Missing or wrong API key. Send Authorization: Bearer KEY."
        return dialect.failed(401, "authentication_error", message)


def _name(host: str) -> str:
    """Return the name in a Host header, without its port: ``[::1]:8000`` is ``::1``.

    "" for an invalid header.
    """
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower()
