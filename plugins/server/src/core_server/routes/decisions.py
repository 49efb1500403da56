"""``/v1/systemone`` and ``/v1/decisions``: questions about a state, answered with labels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from starlette.responses import Response

from core.protocols import Capability
from core.types import ClassifyResult
from core_server.bounds import MAX_CHARACTERS, refuse_beyond
from core_server.queues.questions import Asked
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires import decisions, systemone
from core_wires.errors import OPENAI, SYSTEM_ONE, Dialect
from core_wires.questions import DecisionRequest
from core_wires.reading import Reading, readings
from core_wires.usage import Usage

_WIRES = {"systemone": (systemone, SYSTEM_ONE), "decisions": (decisions, OPENAI)}


async def decide(
    wire: Literal["systemone", "decisions"], server: Server, body: RequestBody
) -> Response:
    """Return the answer to one request; errors are raised."""
    module, dialect = _WIRES[wire]
    request = await body.read(module.read)
    body.share.take(_characters(request, dialect, body.size))
    served = await server.model(dialect, request.model)
    served.needs(Capability.LABELS, "decisions")
    # Templates take milliseconds, during which the loop serves others.
    asked, prompts = await body.run(lambda: _asked(served, request, server.settings.chat))
    results, cached = await _results(served, asked, prompts)

    def told() -> Response:
        answers = [one.answer(result) for one, result in zip(asked, results, strict=True)]
        tokens = served.tokens(prompts, results)
        usage = Usage(tokens, min(cached, tokens), len(answers))
        return reply(module.response(request, answers, model=served.name, usage=usage))

    return await body.run(told, sum(map(len, prompts)))


def _characters(request: DecisionRequest, dialect: Dialect, size: int) -> int:
    """Return the most characters of the prompts: the state for each question, and the rest."""
    factors = {"questions": len(request.questions), "characters of the state": len(request.state)}
    return size + refuse_beyond(MAX_CHARACTERS, "characters of prompts", factors, dialect)


def _asked(
    served: Served, request: DecisionRequest, chat: bool
) -> tuple[tuple[Reading, ...], list[str]]:
    """Return the scoring prompt of each question, as a `Reading` and as text."""
    asked = readings(request)
    if chat:
        return asked, [served.label_prompts(one.as_messages(), one.opening) for one in asked]
    return asked, [one.as_text() for one in asked]


async def _results(
    served: Served, asked: Sequence[Reading], prompts: Sequence[str]
) -> tuple[list[ClassifyResult], int]:
    """Return the results in order, and their cached tokens; questions with equal labels share a
    call."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, one in enumerate(asked):
        places.setdefault(one.labels, []).append(place)

    async def ask(labels: tuple[str, ...], group: list[int]) -> Asked[ClassifyResult]:
        return await served.questions.ask([prompts[place] for place in group], labels)

    asking = [asyncio.ensure_future(ask(*pair)) for pair in places.items()]
    try:
        results = await asyncio.gather(*asking)
    finally:
        for one_call in asking:  # after a failure, the results of the others are not needed
            one_call.cancel()
    found: dict[int, ClassifyResult] = {}
    for group, of_group in zip(places.values(), results, strict=True):
        found.update(zip(group, of_group.results, strict=True))
    return [found[place] for place in range(len(asked))], sum(
        each.cached_tokens for each in results
    )
