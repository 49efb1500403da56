"""``/v1/systemone`` and ``/v1/decisions``: questions about a state, read at their labels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from starlette.responses import Response

from core.protocols import Capability
from core.types import ClassifyResult
from core.wires import decisions, systemone
from core.wires.errors import OPENAI, SYSTEM_ONE
from core.wires.questions import Answer
from core.wires.reading import Reading, readings
from core.wires.usage import Usage
from core_server.questions import Asked
from core_server.replies import reply
from core_server.served import Served

if TYPE_CHECKING:
    from core_server.app import Server

_WIRES = {"systemone": (systemone, SYSTEM_ONE), "decisions": (decisions, OPENAI)}


async def decide(wire: Literal["systemone", "decisions"], server: Server, body: object) -> Response:
    """The answer to one request; raises what keeps it from one."""
    module, dialect = _WIRES[wire]
    request = module.read(body)
    served = await server.model(dialect, request.model)
    served.needs(Capability.LABELS, "decisions")
    asked = readings(request)
    # Templates and tokenizers take milliseconds, in which the loop serves others.
    prompts, tokens = await asyncio.to_thread(_prompts, served, asked, server.settings.chat)
    answers, cached = await _answers(served, asked, prompts)
    usage = Usage(tokens, min(cached, tokens), len(answers))
    return reply(module.response(request, answers, model=served.name, usage=usage))


def _prompts(served: Served, asked: Sequence[Reading], chat: bool) -> tuple[list[str], int]:
    """The prompt of each question, and how many tokens all of them have."""
    if chat:
        prompts = [served.label_prompts(one.as_messages(), one.opening) for one in asked]
    else:
        prompts = [one.as_text() for one in asked]
    return prompts, sum(map(served.length, prompts))


async def _answers(
    served: Served, asked: Sequence[Reading], prompts: Sequence[str]
) -> tuple[list[Answer], int]:
    """The answers in order, and their cached tokens; equal labels wait for one another."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, one in enumerate(asked):
        places.setdefault(one.labels, []).append(place)

    async def ask(labels: tuple[str, ...], group: list[int]) -> Asked[ClassifyResult]:
        return await served.questions.ask([prompts[place] for place in group], labels)

    asking = [asyncio.ensure_future(ask(*pair)) for pair in places.items()]
    try:
        results = await asyncio.gather(*asking)
    finally:
        for one_call in asking:  # where one has failed, nobody waits for the others
            one_call.cancel()
    found: dict[int, ClassifyResult] = {}
    for group, of_group in zip(places.values(), results, strict=True):
        found.update(zip(group, of_group.results, strict=True))
    answers = [one.answer(found[place]) for place, one in enumerate(asked)]
    return answers, sum(each.cached_tokens for each in results)
