"""``/v1/systemone`` and ``/v1/decisions``: questions about a state, answered with labels."""

from __future__ import annotations

import asyncio
from typing import Literal

from starlette.responses import Response

from core.kit.support import compares_sentences
from core.protocols import Capability
from core.types import ClassifyResult
from core_server.access_log import note
from core_server.bounds import MAX_CHARACTERS, refuse_beyond
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires import decisions, systemone
from core_wires.decision_calls import Prepared, grouped, in_order, prepare
from core_wires.errors import OPENAI, SYSTEM_ONE, Dialect
from core_wires.questions import DecisionRequest
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
    sentences = compares_sentences(served.model)
    chat = server.settings.chat and not sentences
    prepared = await body.run(
        lambda: prepare(request, served.label_prompts if chat else None, sentences=sentences)
    )
    results, cached = await _results(served, prepared)

    def response() -> tuple[Response, Usage]:
        answers = prepared.answers(results)
        tokens = served.tokens(prepared.prompts, results)
        usage = Usage(tokens, min(cached, tokens), len(answers))
        body = module.response(request, answers, model=served.name, usage=usage)
        return reply(body), usage

    answer, usage = await body.run(response, sum(map(len, prepared.prompts)))
    note(len(prepared.prompts), usage)
    return answer


def _characters(request: DecisionRequest, dialect: Dialect, size: int) -> int:
    """Return the most characters of the prompts: the state for each question, and the rest."""
    factors = {"questions": len(request.questions), "characters of the state": len(request.state)}
    return size + refuse_beyond(MAX_CHARACTERS, "characters of prompts", factors, dialect)


async def _results(served: Served, prepared: Prepared) -> tuple[list[ClassifyResult], int]:
    """Return the results in order, and their cached tokens; equal labels share a call."""
    groups = grouped(reading.labels for reading in prepared.readings)
    calls = [
        asyncio.ensure_future(
            served.questions.ask([prepared.prompts[index] for index in indices], labels)
        )
        for labels, indices in groups.items()
    ]
    try:
        answered = await asyncio.gather(*calls)
    finally:
        for call in calls:  # after a failure, the results of the others are not needed
            call.cancel()
    cached = sum(group.cached_tokens for group in answered)
    return in_order(groups, (group.results for group in answered)), cached
