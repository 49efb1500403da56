"""``/v1/responses``: a chat's answer in OpenAI's newer format, complete or as a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
from starlette.responses import Response, StreamingResponse

from core.types import Token
from core_server.queues.text_queue import Ended
from core_server.replies import refused, reply
from core_server.request_body import RequestBody
from core_server.routes.generations import Tokens, begin, first_of, gathered, usage_of
from core_server.server import Server
from core_wires import responses
from core_wires.errors import OPENAI
from core_wires.responses import Answer, Event, ResponsesRequest


async def respond(server: Server, body: RequestBody) -> Response:
    """Return the answer to one request; errors are raised before anything is sent."""
    request = await body.read(responses.read)
    begun = await begin(request.chat, server, body)
    answer = Answer(request, uuid.uuid4().hex, int(time.time()), begun.model)
    if not request.chat.stream:
        [result], usage = await gathered(request.chat, begun.tokens)
        return reply(answer.body(result.text, result.finish_reason, usage))
    first = await first_of(begun.tokens)
    events = _events(request, answer, first, begun.tokens)
    return StreamingResponse(events, media_type="text/event-stream")


async def _events(
    request: ResponsesRequest, answer: Answer, first: tuple[int, Token | Ended], tokens: Tokens
) -> AsyncIterator[bytes]:
    """Yield the events of one request; an error after the first token is an event too."""
    text: list[str] = []
    async with aclosing(tokens):
        try:
            for event in answer.begin():
                yield _named(event)
            _, item = first
            while isinstance(item, Token):
                text.append(item.text)
                yield _named(answer.token(item.text))
                _, item = await anext(tokens)
            usage = usage_of(request.chat, {0: item})
            for event in answer.end("".join(text), item.reason, usage):
                yield _named(event)
        except Exception as error:  # noqa: BLE001 - the status is sent: reported as an event
            yield _named(answer.failed(_error(error)))


def _error(error: Exception) -> dict[str, object]:
    body = refused(OPENAI, error).body["error"]
    return body if isinstance(body, dict) else {}


def _named(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), msgspec.json.encode(event))
