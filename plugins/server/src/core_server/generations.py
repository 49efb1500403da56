"""``/v1/chat/completions`` and ``/v1/completions``: texts, whole or as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from starlette.responses import Response, StreamingResponse

from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import BatchResult, Token
from core.wires import completions, generation
from core.wires.chunks import Chunks
from core.wires.errors import OPENAI, refusal
from core.wires.generation import GenerationRequest
from core.wires.usage import Usage
from core_server.replies import event, reply
from core_server.served import Served
from core_server.texts import Ended

if TYPE_CHECKING:
    from core_server.app import Server

_Tokens = AsyncGenerator[Token | Ended, None]


@dataclass(frozen=True, slots=True)
class _Facts:
    id: str
    created: int
    model: str


async def complete(kind: Literal["chat", "completion"], server: Server, body: object) -> Response:
    """The answer to one request; raises what keeps it from one, before anything is sent."""
    request = (generation.read_chat if kind == "chat" else generation.read_completion)(body)
    served = server.model(OPENAI, request.model)
    served.needs(Capability.CHAT if kind == "chat" else Capability.GENERATE, f"{kind}s")
    config = replace(request.config(served.defaults), timeout=server.settings.timeout)
    tokens = served.texts.generate(_beginning(served, request), config)
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    facts = _Facts(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), served.name)
    if not request.stream:
        return reply(await _whole(request, tokens, facts))

    # The first token comes before the status: what is wrong with the request still has one.
    first = await _first(tokens)
    events = _events(request, first, tokens, facts)
    return StreamingResponse(events, media_type="text/event-stream")


def _beginning(
    served: Served, request: GenerationRequest
) -> Callable[[GenerateConfig], TokenStream]:
    if request.kind == "chat":
        return lambda config: served.model.chat(request.messages, config)
    return lambda config: served.model.generate(request.prompt, config)


async def _whole(request: GenerationRequest, tokens: _Tokens, facts: _Facts) -> dict[str, object]:
    made: list[Token] = []
    async with aclosing(tokens):
        async for item in tokens:
            if isinstance(item, Token):
                made.append(item)
            else:
                ended = item
    result = BatchResult(tuple(made), ended.reason)
    told = {"id": facts.id, "created": facts.created, "model": facts.model}
    usage = Usage.of(ended.metrics)
    return completions.response(request, result, **told, usage=usage)  # type: ignore[arg-type]


async def _first(tokens: _Tokens) -> Token | Ended:
    try:
        return await anext(tokens)
    except BaseException:
        await tokens.aclose()
        raise


async def _events(
    request: GenerationRequest, first: Token | Ended, tokens: _Tokens, facts: _Facts
) -> AsyncIterator[bytes]:
    """The events of one answer; an error behind the first token is an event too."""
    chunks = Chunks(request, facts.id, facts.created, facts.model)
    async with aclosing(tokens):
        try:
            for body in chunks.begin():
                yield event(body)
            item = first
            while isinstance(item, Token):
                yield event(chunks.token(item))
                item = await anext(tokens)
            for body in chunks.end(item.reason, Usage.of(item.metrics)):
                yield event(body)
            yield b"data: [DONE]\n\n"
        except Exception as error:  # noqa: BLE001 - the status is sent: told as an event
            yield event(refusal(OPENAI, error).body)
