"""The ASGI application: which route is answered by what, and what all requests go through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from core.errors import GenerationTimeout
from core.wires import systemone
from core.wires.errors import OPENAI, SYSTEM_ONE, Dialect, refusal, unknown_model
from core_server.decisions import decide
from core_server.generations import complete
from core_server.guard import Guard
from core_server.replies import JSON, error_reply, reply
from core_server.served import Served
from core_server.settings import Settings

_Answer = Callable[["Server", object], Awaitable[Response]]
_GONE = 499  # nginx's number for a client that has left


class Server:
    """The served models by name, and the requests that are accepted now."""

    def __init__(self, served: Sequence[Served], settings: Settings) -> None:
        if not served:
            raise ValueError("A server needs a model at least.")
        self.served = {each.name: each for each in served}
        if len(self.served) < len(served):
            raise ValueError("Two of the models have one name.")
        self.settings = settings
        self.accepted = 0

    def model(self, dialect: Dialect, name: str) -> Served:
        """The model of this name; the first for the aliases that clients send by themselves."""
        if name in self.served:
            return self.served[name]
        if name in systemone.ALIASES:
            return next(iter(self.served.values()))
        raise unknown_model(dialect, name)

    def close(self) -> None:
        """Close all models."""
        for each in self.served.values():
            each.close()


def create_app(served: Sequence[Served], settings: Settings | None = None) -> Starlette:
    """The server of these models; the first is the one of System One's ``jev-latest``."""
    server = Server(served, settings or Settings())

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(server.close)

    def post(path: str, dialect: Dialect, answer: _Answer) -> Route:
        return Route(path, partial(_answered, server, dialect, answer), methods=["POST"])

    routes = [
        post("/v1/systemone", SYSTEM_ONE, partial(decide, "systemone")),
        post("/v1/decisions", OPENAI, partial(decide, "decisions")),
        post("/v1/chat/completions", OPENAI, partial(complete, "chat")),
        post("/v1/completions", OPENAI, partial(complete, "completion")),
        Route("/v1/models", partial(_models, server)),
        Route("/health", _health),
    ]
    app = Starlette(routes=routes, lifespan=life, exception_handlers={HTTPException: _no_route})
    app.add_middleware(Guard, settings=server.settings)
    return app


async def _answered(
    server: Server, dialect: Dialect, answer: _Answer, request: Request
) -> Response:
    """Read the body, take a place in the queue, and answer; no error leaves in another shape."""
    try:
        body = _parsed(dialect, await _body(dialect, request, server.settings))
        if server.accepted >= server.settings.max_queue:
            told = f"{server.accepted} requests are being answered. Try again in a second."
            raise dialect.failed(429, "rate_limit_exceeded", told)
        server.accepted += 1
        try:
            work = answer(server, body)
            response = await _while_connected(request, work, server.settings.timeout)
        except BaseException:
            server.accepted -= 1
            raise
        return _Accepted(response, server)
    except Exception as error:  # noqa: BLE001 - each becomes its wire's own
        return error_reply(refusal(dialect, error))


class _Accepted(Response):
    """The answer to an accepted request, which holds its place until all of it is sent."""

    def __init__(self, response: Response, server: Server) -> None:
        self._response, self._server = response, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            # Who reads too slowly loses the rest: the connection ends without an end of the body.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._server.settings.timeout):
                    await self._response(scope, receive, send)
        finally:
            self._server.accepted -= 1


async def _body(dialect: Dialect, request: Request, settings: Settings) -> bytes:
    chunks, size, most = [], 0, settings.max_body
    try:
        async with asyncio.timeout(settings.body_timeout):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    told = f"A body has at most {most:,} bytes."
                    raise dialect.failed(413, "request_too_large", told)
                chunks.append(chunk)
    except TimeoutError:
        told = f"The body was not there within {settings.body_timeout:g} s."
        raise dialect.failed(408, "request_timeout", told) from None
    return b"".join(chunks)


def _parsed(dialect: Dialect, body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise dialect.invalid((), f"The body is no JSON: {error}", "json_invalid") from None


async def _while_connected(
    request: Request, answer: Awaitable[Response], timeout: float | None
) -> Response:
    """The answer, unless its time is over or the client leaves, either of which cancels it."""
    work = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(_left(request))
    try:
        done, _ = await asyncio.wait(
            {work, left}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if work in done:
            return await work
        if left in done:
            return Response(status_code=_GONE)
        raise GenerationTimeout(timeout or 0.0)
    finally:
        left.cancel()
        work.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _models(server: Server, request: Request) -> Response:
    """One body that the clients of OpenAI (``data``) and of System One (``models``) read."""
    data, models = [], []
    for each in server.served.values():
        described = f"{each.model.model_type}, on {each.backend or 'this machine'}"
        data.append({"id": each.name, "object": "model", "created": each.since, "owned_by": "core"})
        models.append({"name": each.name, "description": described, "release_date": ""})
    return reply({"object": "list", "data": data, "models": models})


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = f"{request.method} {request.url.path:.200} is not served here: {error.detail}."
    return error_reply(OPENAI.failed(error.status_code, "not_found", told))


async def _health(request: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type=JSON)
