"""The page at ``/``, to try a model in a browser: a chat, and labels with bars that update live.

Its files are in this folder and sent unchanged. They call the same routes as any client, and
their headers forbid a browser to load anything from elsewhere, to run inline scripts, and to
insert text as markup (Content Security Policy Level 3,
https://www.w3.org/TR/CSP3/; Trusted Types, https://www.w3.org/TR/trusted-types/).
"""

from __future__ import annotations

from functools import partial
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = "/page/"
_FILES = {
    "index.html": "text/html",
    "style.css": "text/css",
    "main.js": "text/javascript",
    "server.js": "text/javascript",
    "labels.js": "text/javascript",
    "many.js": "text/javascript",
    "chat.js": "text/javascript",
    "markdown.js": "text/javascript",
    "copies.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def _path(name: str) -> str:
    return "/" if name == "index.html" else _FOLDER + name


PATHS = frozenset(map(_path, _FILES))
"""The paths of the page. It holds no secret and has a field for the key, so it requires none."""


def routes() -> list[Route]:
    """Return a route for each file of the page."""
    return [Route(_path(name), partial(_file, _read(name))) for name in _FILES]


def _read(name: str) -> Response:
    body = files(__package__).joinpath(name).read_bytes()
    return Response(body, headers=HEADERS, media_type=_FILES[name])


async def _file(response: Response, request: Request) -> Response:
    return response
