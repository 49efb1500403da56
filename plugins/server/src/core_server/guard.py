"""What stands before every route: the name the server is called by, and its key."""

from __future__ import annotations

import hmac
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from core.secret import Secret
from core.wires.errors import OPENAI, SYSTEM_ONE, WireError
from core_server.page import PATHS
from core_server.replies import error_reply
from core_server.settings import Settings

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_FOREIGN = ("cross-site", "same-site")  # https://www.w3.org/TR/fetch-metadata/
_OPEN = PATHS | {"/health"}  # the page asks for the key; others look whether the server lives


class Guard:
    """Refuses who calls the server by a foreign name, or without its key.

    The name: a page in a browser can have its own host name resolve to this machine's loopback,
    and would then read answers as if it had come from here (DNS rebinding). By the right name it
    could read nothing, but set the model to work: a browser tells that it comes from elsewhere.
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
            return dialect.failed(403, "forbidden", "This server is not called by that name.")
        if self._hosts and path not in _OPEN and headers.get("sec-fetch-site") in _FOREIGN:
            return dialect.failed(403, "forbidden", "A page of another site asks nothing here.")
        if self._key is None or path in _OPEN:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # A header is Latin-1. In constant time: how long it takes tells nothing of the key.
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._key.reveal().encode())
        if same and scheme.lower() == "bearer":
            return None
        told = "Send the server's key: Authorization: Bearer KEY."
        return dialect.failed(401, "authentication_error", told)


def _name(host: str) -> str:
    """The name in a Host header, without its port: ``[::1]:8000`` is ``::1``; "" for no host."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found[1] or found[2]).lower()
