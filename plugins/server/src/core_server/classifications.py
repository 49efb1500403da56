"""``/v1/classify`` and vLLM's ``/classify``: many texts, one task, a decision for each."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse

from core.protocols import Capability
from core.records import error_record
from core.tasks.decision import Decision
from core.tasks.task import Task
from core.wires.errors import OPENAI, WireError, refusal
from core.wires.usage import Usage
from core_server import classify_wire
from core_server.classify_wire import ClassificationRequest
from core_server.replies import NDJSON, reply
from core_server.served import Served

if TYPE_CHECKING:
    from core_server.app import Server

_BLOCK = 1024  # texts of a stream that are asked about at once: four rounds of the queue


async def classify(server: Server, body: object) -> Response:
    """The decisions of one body, as one answer."""
    request = classify_wire.read(body)
    served, task = await _task(server, request)
    found = await _found(served, task, request.texts)
    answers = [*found.answers(request.show_prompts)]
    return reply(classify_wire.response(answers, model=served.name, usage=found.usage))


async def classify_lines(server: Server, lines: IO[bytes]) -> Response:
    """The decisions of a body of lines, a line each, in constant memory; see `classify_wire`."""
    try:
        request = classify_wire.read_head(lines.readline())
        served, task = await _task(server, request)
    except BaseException:
        lines.close()
        raise
    answers = _lines(served, task, lines, request.show_prompts)
    return StreamingResponse(answers, media_type=NDJSON)


async def _task(server: Server, request: ClassificationRequest) -> tuple[Served, Task]:
    served = await server.model_or_first(request.model)
    served.needs(Capability.LABELS, "classify with labels")
    return served, await served.tasks.at_level(request.task, request.level)


@dataclass(frozen=True, slots=True)
class _Found:
    """A decision for each text, the prompts behind them, as many for each, and what they cost."""

    decisions: list[Decision]
    prompts: list[str]
    usage: Usage

    def answers(self, show_prompts: bool) -> Iterator[dict[str, object]]:
        each = len(self.prompts) // max(1, len(self.decisions))
        for place, decision in enumerate(self.decisions):
            prompts = self.prompts[place * each : (place + 1) * each] if show_prompts else ()
            yield classify_wire.answer(decision, prompts)


async def _found(served: Served, task: Task, texts: Sequence[str]) -> _Found:
    labels = task.request(served.model).labels
    prompts, tokens = await asyncio.to_thread(_prompts, served, task, texts)
    asked = await served.questions.ask(prompts, labels)
    usage = Usage(tokens, min(asked.cached_tokens, tokens), 0)
    found = await asyncio.to_thread(lambda: [*task.decisions(served.model, prompts, asked.results)])
    return _Found(found, prompts, usage)


def _prompts(served: Served, task: Task, texts: Sequence[str]) -> tuple[list[str], int]:
    prompts = task.prompts(texts)
    return prompts, sum(map(served.length, prompts))


# --------------------------------------------------------------------------- lines


async def _lines(
    served: Served, task: Task, lines: IO[bytes], show_prompts: bool
) -> AsyncIterator[bytes]:
    """The answers of a stream, a block at a time; what is wrong with a line is its answer."""
    try:
        while block := await asyncio.to_thread(_block, lines):
            texts = [text for text in block if isinstance(text, str)]
            found = (await _found(served, task, texts)).answers(show_prompts)
            answers = [next(found) if isinstance(line, str) else _refused(line) for line in block]
            yield b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)
    except Exception as error:  # noqa: BLE001 - the status is sent: told as the last line
        yield msgspec.json.encode(refusal(OPENAI, error).body) + b"\n"
    finally:
        lines.close()


def _block(lines: IO[bytes]) -> list[str | WireError]:
    filled = (line for line in lines if line.strip())
    return [*map(_text, islice(filled, _BLOCK))]


def _text(line: bytes) -> str | WireError:
    try:
        return classify_wire.read_text(line)
    except WireError as error:
        return error


def _refused(error: WireError) -> dict[str, object]:
    return {"error": error_record(error)}


# --------------------------------------------------------------------------- vLLM's


async def classify_as_vllm(server: Server, body: object) -> Response:
    """vLLM's answer: a label and the probabilities of all, in the order of ``labels``.

    Source: vLLM's docs/serving, "Classification API". There the labels are the model's own, here
    the request has them, as for ``/v1/classify``, with ``input`` for ``texts``.
    """
    request = classify_wire.read(_renamed(body))
    served, task = await _task(server, request)
    found = await _found(served, task, request.texts)
    usage = found.usage
    return reply(
        {
            "id": f"classify-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": served.name,
            "data": [*_rows(task, found.decisions)],
            "usage": {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": 0,
                "total_tokens": usage.input_tokens,
                "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            },
        }
    )


def _renamed(body: object) -> object:
    if not isinstance(body, dict) or "input" not in body:
        return body
    given = body["input"]
    texts = [given] if isinstance(given, str) else given
    return {name: value for name, value in body.items() if name != "input"} | {"texts": texts}


def _rows(task: Task, decisions: Sequence[Decision]) -> Iterator[dict[str, object]]:
    for index, decision in enumerate(decisions):
        found = decision.raise_for_error().probabilities or {}
        yield {
            "index": index,
            "label": decision.label,
            "probs": [found[label] for label in task.labels],
            "num_classes": len(task.labels),
        }
