"""The path of a request: a place in the queue, its body, its handler, and the end of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from core.errors import GenerationTimeout
from core_server.access_log import note
from core_server.bodies import spooled, whole
from core_server.places import Place
from core_server.replies import NDJSON, error_reply, refused
from core_server.request_body import RequestBody
from core_server.server import Server
from core_wires.errors import Dialect

Handler: TypeAlias = Callable[[Server, RequestBody], Awaitable[Response]]
"""A function that answers a request, or raises its error."""

_GONE = 499  # nginx's number for a client that has left
_GRACE = 5.0  # seconds to send the last line of an answer that the timeout has ended


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The handler of one path. ``handle_lines`` answers bodies of lines, if the path takes them."""

    server: Server
    dialect: Dialect
    handle: Handler
    handle_lines: Handler | None = None

    async def respond(self, request: Request) -> Response:
        """Return the answer to a request; errors have the format of the path's API."""
        try:
            response = await self._answered(request)
        except ClientDisconnect:  # before its body was there
            response = _gone()
        except Exception as error:  # noqa: BLE001 - reported in the format of its API
            response = error_reply(refused(self.dialect, error))
        return response

    async def _answered(self, request: Request) -> Response:
        server, handle = self.server, self.handle
        place = server.places.take(self.dialect)
        try:
            with server.models.holding() as place.release:
                if self.handle_lines is not None and _has_lines(request):
                    handle = self.handle_lines
                    place.spool = await spooled(self.dialect, request, server.settings, place.disk)
                content = place.spool or await whole(
                    self.dialect, request, server.settings, place.memory
                )
                body = RequestBody(content, self.dialect, server.threads, place.memory)
                answer = handle(server, body)
                response = await _while_connected(request, answer, server.settings.timeout)
                if not isinstance(response, StreamingResponse):
                    place.memory.take(len(response.body))
                    place.release()
        except BaseException:
            place.leave()
            raise
        rearmed = handle is self.handle_lines
        return _PlacedResponse(response, place, server.settings.timeout, rearmed=rearmed)


def _has_lines(request: Request) -> bool:
    return request.headers.get("content-type", "").startswith(NDJSON)


class _PlacedResponse(Response):
    """The answer to an accepted request, which keeps its place until it is sent.

    ``rearmed``: each part restarts the timeout, because the answer may be long.
    """

    def __init__(
        self, response: Response, place: Place, timeout: float | None, *, rearmed: bool
    ) -> None:
        self._response = response
        self._timeout = None if timeout is None else timeout + _GRACE
        self._place, self._rearmed = place, rearmed
        self.status_code = response.status_code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        timeout = self._timeout
        try:
            # A client that reads too slowly loses the rest: the connection closes mid-body.
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout) as limit:

                    async def sent(message: Message) -> None:
                        await send(message)
                        if self._rearmed and timeout is not None:
                            limit.reschedule(asyncio.get_running_loop().time() + timeout)

                    await self._response(scope, receive, sent)
        finally:
            self._place.leave()


async def _while_connected(
    request: Request, answer: Awaitable[Response], timeout: float | None
) -> Response:
    """Return the answer; a timeout, or a client that disconnects, cancels it."""
    answering = asyncio.ensure_future(answer)
    disconnecting = asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait(
            {answering, disconnecting}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        if answering in done:
            return await answering
        if disconnecting in done:
            return _gone()
        raise GenerationTimeout(timeout or 0.0)
    finally:
        disconnecting.cancel()
        answering.cancel()


def _gone() -> Response:
    note(reason="the client disconnected")
    return Response(status_code=_GONE)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
