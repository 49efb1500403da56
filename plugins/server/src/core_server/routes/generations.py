"""``/v1/chat/completions`` and ``/v1/completions``: texts, complete or as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response, StreamingResponse

from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import BatchResult, GenerateMetrics, Token
from core_server.access_log import note
from core_server.bounds import bytes_of_stops, check_variables
from core_server.queues.text_queue import Ended, changed
from core_server.replies import event, refused, reply
from core_server.request_body import RequestBody
from core_server.routes.extras import extras_of
from core_server.served import Served
from core_server.server import Server
from core_wires import completions, generation
from core_wires.chunks import Chunks
from core_wires.completions import Extras
from core_wires.errors import OPENAI
from core_wires.generation import GenerationRequest
from core_wires.usage import Usage

_Tokens = AsyncGenerator[tuple[int, Token | Ended], None]
_STRIDE = 0xD1342543DE82EF95  # an odd constant: seeds far apart


@dataclass(frozen=True, slots=True)
class _Facts:
    id: str
    created: int
    model: str


async def complete(
    kind: Literal["chat", "completion"], server: Server, body: RequestBody
) -> Response:
    """Return the answer to one request; errors are raised before anything is sent."""
    reader = generation.read_chat if kind == "chat" else generation.read_completion
    request = await body.read(reader)
    body.share.take(bytes_of_stops(request.options.get("stop", ()), request.n))
    served = await server.model(OPENAI, request.model)
    served.needs(Capability.CHAT if kind == "chat" else Capability.GENERATE, f"{kind}s")
    extras, prompt_tokens = await extras_of(served, request, body)
    timeout = server.settings.timeout
    configs = await body.brief(lambda: _configs(served, request, timeout))
    tokens = _tokens(served, request, configs, prompt_tokens)
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    facts = _Facts(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), served.name)
    if not request.stream:
        return reply(await _whole(request, tokens, facts, extras))

    # Wait for the first token before the status, so that an invalid request has an error status.
    first = await _first(tokens)
    events = _events(request, first, tokens, facts, extras)
    return StreamingResponse(events, media_type="text/event-stream")


def _tokens(
    served: Served,
    request: GenerationRequest,
    configs: Sequence[GenerateConfig],
    prompt_tokens: int,
) -> _Tokens:
    """Return the tokens of all answers, each with the index of its answer."""
    if not request.generates:
        return _nothing(request.n, prompt_tokens)
    return served.texts.generate(_beginning(served, request), configs)


async def _nothing(answers: int, prompt_tokens: int) -> _Tokens:
    for index in range(answers):
        yield index, Ended("length", GenerateMetrics(prompt_tokens=prompt_tokens))


def _configs(
    served: Served, request: GenerationRequest, timeout: float | None
) -> list[GenerateConfig]:
    """Return the config of each answer: with a seed, the first uses it, and the others differ."""
    check_variables(request.options.get("chat_template_kwargs"), request.n)
    config = changed(request.config(served.defaults), timeout=timeout)
    if config.seed is None:
        return [config] * request.n
    seeds = [(config.seed + index * _STRIDE) % 2**64 for index in range(request.n)]
    return [changed(config, seed=seed) for seed in seeds]


def _beginning(
    served: Served, request: GenerationRequest
) -> Callable[[GenerateConfig], TokenStream]:
    if request.kind == "chat":
        return lambda config: served.model.chat(request.messages, config)
    return lambda config: served.model.generate(request.prompt, config)


async def _whole(
    request: GenerationRequest, tokens: _Tokens, facts: _Facts, extras: Extras
) -> dict[str, object]:
    texts: list[list[Token]] = [[] for _ in range(request.n)]
    ended: dict[int, Ended] = {}
    async with aclosing(tokens):
        async for index, item in tokens:
            if isinstance(item, Token):
                texts[index].append(item)
            else:
                ended[index] = item
    results = [BatchResult(tuple(text), ended[index].reason) for index, text in enumerate(texts)]
    return completions.response(
        request,
        *results,
        id=facts.id,
        created=facts.created,
        model=facts.model,
        usage=_usage(ended.values()),
        extras=extras,
    )


def _usage(ended: Collection[Ended]) -> Usage:
    """Return the usage of all answers together: their one prompt was computed once."""
    metrics = [one.metrics for one in ended]
    usage = Usage(
        metrics[0].prompt_tokens,
        min(one.cached_prompt_tokens for one in metrics),
        sum(one.generated_tokens for one in metrics),
    )
    note(len(ended), usage)
    return usage


async def _first(tokens: _Tokens) -> tuple[int, Token | Ended]:
    try:
        return await anext(tokens)
    except BaseException:
        await tokens.aclose()
        raise


async def _events(
    request: GenerationRequest,
    first: tuple[int, Token | Ended],
    tokens: _Tokens,
    facts: _Facts,
    extras: Extras,
) -> AsyncIterator[bytes]:
    """Yield the events of one request; an error after the first token is an event too."""
    chunks = Chunks(request, facts.id, facts.created, facts.model, extras)
    ended: list[Ended] = []
    async with aclosing(tokens):
        try:
            for body in chunks.begin():
                yield event(body)
            index, item = first
            while True:
                if isinstance(item, Token):
                    yield event(chunks.token(item, index))
                else:
                    yield event(chunks.end(item.reason, index))
                    ended.append(item)
                if len(ended) == request.n:
                    break
                index, item = await anext(tokens)
            for body in chunks.usage(_usage(ended)):
                yield event(body)
            yield b"data: [DONE]\n\n"
        except Exception as error:  # noqa: BLE001 - the status is sent: reported as an event
            yield event(refused(OPENAI, error).body)
