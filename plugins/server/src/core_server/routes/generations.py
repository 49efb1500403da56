"""``/v1/chat/completions`` and ``/v1/completions``: texts, complete or as a stream of events."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
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

Tokens = AsyncGenerator[tuple[int, Token | Ended], None]
_STRIDE = 0xD1342543DE82EF95  # an odd constant: seeds far apart


@dataclass(frozen=True, slots=True)
class Begun:
    """The answers to a request: the model's name, the tokens, and the extras of each prompt."""

    model: str
    tokens: Tokens
    extras: Sequence[Extras]


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
    begun = await begin(request, server, body)
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    facts = _Facts(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), begun.model)
    if not request.stream:
        return reply(await _whole(request, begun, facts))

    # Wait for the first token before the status, so that an invalid request has an error status.
    first = await first_of(begun.tokens)
    events = _events(request, first, begun, facts)
    return StreamingResponse(events, media_type="text/event-stream")


async def begin(request: GenerationRequest, server: Server, body: RequestBody) -> Begun:
    """Return the tokens of a request's answers. Raises for a request that the model refuses."""
    body.share.take(bytes_of_stops(request.options.get("stop", ()), request.answers))
    served = await server.model(OPENAI, request.model)
    kind = request.kind
    served.needs(Capability.CHAT if kind == "chat" else Capability.GENERATE, f"{kind}s")
    extras, prompt_tokens = await extras_of(served, request, body)
    timeout = server.settings.timeout
    configs = await body.brief(lambda: _configs(served, request, timeout))
    return Begun(served.name, _tokens(served, request, configs, prompt_tokens), extras)


def _tokens(
    served: Served,
    request: GenerationRequest,
    configs: Sequence[GenerateConfig],
    prompt_tokens: Sequence[int],
) -> Tokens:
    """Return the tokens of all answers, each with the index of its answer."""
    if not request.generates:
        return _nothing(request, prompt_tokens)
    return served.texts.generate(_beginnings(served, request), configs)


async def _nothing(request: GenerationRequest, prompt_tokens: Sequence[int]) -> Tokens:
    for index in range(request.answers):
        metrics = GenerateMetrics(prompt_tokens=prompt_tokens[index // request.n])
        yield index, Ended("length", metrics)


def _configs(
    served: Served, request: GenerationRequest, timeout: float | None
) -> list[GenerateConfig]:
    """Return the config of each answer.

    With a seed, the first answer to each prompt uses it, and the others differ.
    """
    check_variables(request.options.get("chat_template_kwargs"), request.n)
    config = changed(request.config(served.defaults), timeout=timeout)
    if config.seed is None:
        return [config] * request.answers
    seeds = [(config.seed + index * _STRIDE) % 2**64 for index in range(request.n)]
    return [changed(config, seed=seed) for seed in seeds] * len(request.prompts)


def _beginnings(
    served: Served, request: GenerationRequest
) -> list[Callable[[GenerateConfig], TokenStream]]:
    """Return the function that begins each answer."""
    model = served.model
    if request.kind == "chat":
        return [lambda config: model.chat(request.messages, config)] * request.n
    begins = [partial(model.generate, prompt) for prompt in request.prompts]
    return [begin for begin in begins for _ in range(request.n)]


async def gathered(request: GenerationRequest, tokens: Tokens) -> tuple[list[BatchResult], Usage]:
    """Return the complete answers, and their usage."""
    texts: list[list[Token]] = [[] for _ in range(request.answers)]
    ended: dict[int, Ended] = {}
    async with aclosing(tokens):
        async for index, item in tokens:
            if isinstance(item, Token):
                texts[index].append(item)
            else:
                ended[index] = item
    results = [BatchResult(tuple(text), ended[index].reason) for index, text in enumerate(texts)]
    return results, usage_of(request, ended)


async def _whole(request: GenerationRequest, begun: Begun, facts: _Facts) -> dict[str, object]:
    results, usage = await gathered(request, begun.tokens)
    return completions.response(
        request,
        *results,
        id=facts.id,
        created=facts.created,
        model=facts.model,
        usage=usage,
        extras=begun.extras,
    )


def usage_of(request: GenerationRequest, ended: Mapping[int, Ended]) -> Usage:
    """Return the usage of all answers together: each prompt was computed once."""
    metrics = [ended[index].metrics for index in range(request.answers)]
    by_prompt = [metrics[first : first + request.n] for first in range(0, len(metrics), request.n)]
    usage = Usage(
        sum(own[0].prompt_tokens for own in by_prompt),
        sum(min(one.cached_prompt_tokens for one in own) for own in by_prompt),
        sum(one.generated_tokens for one in metrics),
    )
    note(len(ended), usage)
    return usage


async def first_of(tokens: Tokens) -> tuple[int, Token | Ended]:
    """Return the first token. Closes the generation and raises if it fails before that."""
    try:
        return await anext(tokens)
    except BaseException:
        await tokens.aclose()
        raise


async def _events(
    request: GenerationRequest,
    first: tuple[int, Token | Ended],
    begun: Begun,
    facts: _Facts,
) -> AsyncIterator[bytes]:
    """Yield the events of one request; an error after the first token is an event too."""
    chunks = Chunks(request, facts.id, facts.created, facts.model, begun.extras)
    tokens = begun.tokens
    ended: dict[int, Ended] = {}
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
                    ended[index] = item
                if len(ended) == request.answers:
                    break
                index, item = await anext(tokens)
            for body in chunks.usage(usage_of(request, ended)):
                yield event(body)
            yield b"data: [DONE]\n\n"
        except Exception as error:  # noqa: BLE001 - the status is sent: reported as an event
            yield event(refused(OPENAI, error).body)
