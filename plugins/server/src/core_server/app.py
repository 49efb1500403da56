"""The ASGI application: its routes, and the path of every request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from core.errors import GenerationTimeout
from core_server.bodies import spooled, whole
from core_server.classifications import classify, classify_as_vllm, classify_lines
from core_server.contract.answering import Contract
from core_server.decisions import decide
from core_server.generations import complete
from core_server.guard import Guard
from core_server.measures import measures
from core_server.models import Loadable, Models
from core_server.page import routes as page_routes
from core_server.places import Place, Places
from core_server.replies import JSON, NDJSON, error_reply, reply
from core_server.scoring import score_items
from core_server.served import Served
from core_server.settings import Settings
from core_server.threads import Threads
from core_server.tokens import apply_template, detokenize, tokenize
from core_server.work import Work
from core_wires import systemone
from core_wires.contract import OPERATIONS, PREFIX
from core_wires.errors import OPENAI, SYSTEM_ONE, Dialect, refusal, unknown_model

_Answer = Callable[["Server", Work], Awaitable[Response]]
_GONE = 499  # nginx's number for a client that has left
_GRACE = 5.0  # seconds to send the last line of an answer that the timeout has ended


class Server:
    """The served models by name, with the places and threads of their requests."""

    def __init__(self, served: Sequence[Served | Loadable], settings: Settings) -> None:
        self.models = Models(served, settings.memory_limit)
        self.settings = settings
        self.places = Places(settings)
        self.threads = Threads()

    async def model(self, dialect: Dialect, name: str) -> Served:
        """Return the model of this name, loaded; the first for the aliases that clients send by
        default. The request holds it until it is answered."""
        if name in systemone.ALIASES and name not in self.models.shelves:
            name = next(iter(self.models.shelves))
        if name not in self.models.shelves:
            raise unknown_model(dialect, name)
        return await self.models.take(name)

    async def model_or_first(self, name: str) -> Served:
        """Return the model of this name; the first if the name is empty (core's and vLLM's API)."""
        return await self.model(OPENAI, name or next(iter(self.models.shelves)))


def create_app(served: Sequence[Served | Loadable], settings: Settings | None = None) -> Starlette:
    """Return the server of these models; the first one answers to System One's ``jev-latest``."""
    server = Server(served, settings or Settings())
    contract = Contract()

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await server.models.close()
        server.threads.close()

    def post(path: str, dialect: Dialect, answer: _Answer, lines: _Answer | None = None) -> Route:
        return Route(path, partial(_answered, server, dialect, answer, lines), methods=["POST"])

    routes = [
        post("/v1/systemone", SYSTEM_ONE, partial(decide, "systemone")),
        post("/v1/decisions", OPENAI, partial(decide, "decisions")),
        post("/v1/chat/completions", OPENAI, partial(complete, "chat")),
        post("/v1/completions", OPENAI, partial(complete, "completion")),
        post("/v1/classify", OPENAI, classify, classify_lines),
        post("/classify", OPENAI, classify_as_vllm),
        post("/generative_scoring", OPENAI, score_items),
        post("/tokenize", OPENAI, tokenize),
        post("/detokenize", OPENAI, detokenize),
        post("/apply-template", OPENAI, apply_template),
        *(post(PREFIX + name, OPENAI, partial(contract.answer, name)) for name in OPERATIONS),
        Route("/metrics", partial(_metrics, server)),
        Route("/v1/models", partial(_models, server)),
        Route("/health", _health),
        *page_routes(),
    ]
    app = Starlette(routes=routes, lifespan=life, exception_handlers={HTTPException: _no_route})
    app.add_middleware(Guard, settings=server.settings)
    return app


async def _answered(
    server: Server, dialect: Dialect, answer: _Answer, lines: _Answer | None, request: Request
) -> Response:
    """Take a place in the queue, read the body, and answer; errors have their API's format."""
    response = await _accepted(server, dialect, answer, lines, request)
    server.places.answers[response.status_code] += 1
    return response


async def _accepted(
    server: Server, dialect: Dialect, answer: _Answer, lines: _Answer | None, request: Request
) -> Response:
    try:
        place = server.places.take(dialect)
        try:
            with server.models.holding() as place.release:
                work, answer_ = await _work(server, dialect, answer, lines, request, place)
                answering = answer_(server, work)
                response = await _while_connected(request, answering, server.settings.timeout)
                if not isinstance(response, StreamingResponse):
                    place.memory.take(len(response.body))
                    place.release()
        except BaseException:
            place.leave()
            raise
        return _Accepted(response, server, place, rearmed=answer_ is lines)
    except ClientDisconnect:  # before its body was there
        return Response(status_code=_GONE)
    except Exception as error:  # noqa: BLE001 - reported in the format of its API
        return error_reply(refusal(dialect, error))


async def _work(
    server: Server,
    dialect: Dialect,
    answer: _Answer,
    lines: _Answer | None,
    request: Request,
    place: Place,
) -> tuple[Work, _Answer]:
    """Return the body of a request, and the function that answers it."""
    if lines is not None and request.headers.get("content-type", "").startswith(NDJSON):
        place.spool = await spooled(dialect, request, server.settings, place.disk)
        return Work(place.spool, dialect, server.threads, place.memory), lines
    body = await whole(dialect, request, server.settings, place.memory)
    return Work(body, dialect, server.threads, place.memory), answer


class _Accepted(Response):
    """The answer to an accepted request, which keeps its place until it is sent.

    ``rearmed``: each part restarts the timeout, because the answer may be long.
    """

    def __init__(self, response: Response, server: Server, place: Place, *, rearmed: bool) -> None:
        timeout = server.settings.timeout
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
    """Return one body for the clients of OpenAI (``data``) and of System One (``models``)."""
    data, models = [], []
    for each in server.models.shelves.values():
        described = f"{each.model_type}, on {each.backend or 'this machine'}"
        data.append({"id": each.name, "object": "model", "created": each.since, "owned_by": "core"})
        models.append({"name": each.name, "description": described, "release_date": ""})
    return reply({"object": "list", "data": data, "models": models})


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"Unknown endpoint: {request.method} {request.url.path:.200} ({error.detail})."
    return error_reply(OPENAI.failed(error.status_code, "not_found", message))


async def _metrics(server: Server, request: Request) -> Response:
    return measures(server)


async def _health(request: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type=JSON)
