"""The ASGI application: its routes, and the checks before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from core_server.access_log import AccessLog
from core_server.endpoint import Endpoint, Handler
from core_server.guard import Guard
from core_server.models import Loadable
from core_server.page import routes as page_routes
from core_server.replies import JSON, error_reply, reply
from core_server.routes.classify import classify, classify_as_vllm, classify_lines
from core_server.routes.contract.answering import Contract
from core_server.routes.decisions import decide
from core_server.routes.embeddings import embed
from core_server.routes.generations import complete
from core_server.routes.metrics import metrics
from core_server.routes.responses import respond
from core_server.routes.scoring import score_items
from core_server.routes.tokens import apply_template, detokenize, tokenize
from core_server.served import Served
from core_server.server import Server
from core_server.settings import Settings
from core_tasks.deciding import Path
from core_tasks.task import Task
from core_wires.contract import OPERATIONS, PREFIX
from core_wires.errors import OPENAI, SYSTEM_ONE, Dialect


def create_app(
    served: Sequence[Served | Loadable],
    settings: Settings | None = None,
    *,
    tasks: Mapping[str, Task | Path] | None = None,
    heads: Mapping[str, Any] | None = None,
) -> Starlette:
    """Return the server of these models; the first one answers to System One's ``jev-latest``.

    ``tasks`` and ``heads`` are values or paths of files, by the names with which ``/v1/classify``
    selects them.
    """
    server = Server(served, settings or Settings(), tasks, heads)
    contract = Contract()

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await server.close()

    def post(
        path: str, dialect: Dialect, handle: Handler, handle_lines: Handler | None = None
    ) -> Route:
        endpoint = Endpoint(server, dialect, handle, handle_lines)
        return Route(path, endpoint.respond, methods=["POST"])

    routes = [
        post("/v1/systemone", SYSTEM_ONE, partial(decide, "systemone")),
        post("/v1/decisions", OPENAI, partial(decide, "decisions")),
        post("/v1/chat/completions", OPENAI, partial(complete, "chat")),
        post("/v1/completions", OPENAI, partial(complete, "completion")),
        post("/v1/responses", OPENAI, respond),
        post("/v1/classify", OPENAI, classify, classify_lines),
        post("/v1/embeddings", OPENAI, embed),
        post("/classify", OPENAI, classify_as_vllm),
        post("/generative_scoring", OPENAI, score_items),
        post("/tokenize", OPENAI, tokenize),
        post("/detokenize", OPENAI, detokenize),
        post("/apply-template", OPENAI, apply_template),
        *(post(PREFIX + name, OPENAI, partial(contract.answer, name)) for name in OPERATIONS),
        Route("/metrics", partial(metrics, server)),
        Route("/v1/models", partial(_models, server)),
        Route("/v1/tasks", partial(_tasks, server)),
        Route("/health", _health),
        *page_routes(),
    ]
    app = Starlette(routes=routes, lifespan=life, exception_handlers={HTTPException: _no_route})
    app.add_middleware(Guard, settings=server.settings)
    app.add_middleware(AccessLog, answers=server.places.answers)
    return app


async def _models(server: Server, request: Request) -> Response:
    """Return one body for the clients of OpenAI (``data``) and of System One (``models``)."""
    data, models = [], []
    for shelf in server.models.shelves.values():
        description = f"{shelf.model_type}, on {shelf.backend or 'this machine'}"
        facts = {"object": "model", "created": shelf.since, "owned_by": "core"}
        data.append({"id": shelf.name} | facts)
        models.append({"name": shelf.name, "description": description, "release_date": ""})
    by_name = {one["id"]: one for one in data}
    for alias, name in server.settings.aliases.items():
        data.append(by_name[name] | {"id": alias, "root": name})
    return reply({"object": "list", "data": data, "models": models})


async def _tasks(server: Server, request: Request) -> Response:
    """Return the tasks and heads, in the format of ``/v1/models``."""
    data = [named.to_dict() for named in server.questions.values()]
    return reply({"object": "list", "data": data})


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"Unknown endpoint: {request.method} {request.url.path:.200} ({error.detail})."
    return error_reply(OPENAI.failed(error.status_code, "not_found", message))


async def _health(request: Request) -> Response:
    return Response(b'{"status":"ok"}', media_type=JSON)
