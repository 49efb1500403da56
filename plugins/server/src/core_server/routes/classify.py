"""``/v1/classify`` and vLLM's ``/classify``: many texts, one task, a decision for each."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO

import msgspec
from starlette.responses import Response, StreamingResponse

from core.errors import TaskError
from core.kit.support import blank_error, compares_sentences
from core.protocols import Capability
from core.records import error_record
from core.types import ClassifyResult
from core_server.access_log import note
from core_server.bounds import bytes_of_task, repeats, rows_at_once
from core_server.questions import Question
from core_server.queues.question_queue import QueueResults
from core_server.replies import NDJSON, refused, reply
from core_server.request_body import RequestBody
from core_server.routes import classify_wire
from core_server.routes.classify_wire import ClassificationRequest
from core_server.served import Served
from core_server.server import Server
from core_tasks.decision import Decision
from core_tasks.task import Task
from core_wires.completions import usage_body
from core_wires.errors import OPENAI, WireError
from core_wires.usage import Usage

_BLOCK = 1024  # texts of a stream that are classified at once: four rounds of the queue
_SKIPPED = 1 << 16  # bytes of a line that is too long, skipped at once
_ALLOWING = '"allow_blank": true'
_Block = list[str | WireError]


async def classify(server: Server, body: RequestBody) -> Response:
    """Return the decisions of one body, as one answer."""
    request = await body.read(lambda data: classify_wire.read(data, server.questions))
    served, _, classified = await _classified_body(server, request, body)

    def response() -> Response:
        answers = [*classified.answers(request.show_prompts)]
        return reply(classify_wire.response(answers, model=served.name, usage=classified.usage))

    return await body.run(response)


async def classify_lines(server: Server, body: RequestBody) -> Response:
    """Return the decisions of a body of lines, a line each, in constant memory.

    See `classify_wire`.
    """
    most = server.settings.max_body
    head = await body.run(lambda: body.lines.readline(most + 1))
    if len(head) > most:
        raise _too_long(most)
    request = await body.run(lambda: classify_wire.read_head(head, server.questions), len(head))
    body.share.take(len(head) + bytes_of_task(request.task, (), request.level))
    with server.models.held_meanwhile():
        _, task = await _task(server, request)  # an error here still has a status
    return StreamingResponse(_lines(server, request, task, body), media_type=NDJSON)


async def _task(server: Server, request: ClassificationRequest) -> tuple[Served, Question]:
    served = await server.model_or_first(request.model)
    question = request.task_of(sentences=compares_sentences(served.model))
    try:
        if isinstance(question, Task):
            served.needs(Capability.LABELS, "classify with labels")
            question.request(served.model)
        else:
            served.needs(Capability.HIDDEN_STATES, "classifier heads")
        return served, await served.tasks.at_level(question, request.level)
    except TaskError as error:
        raise OPENAI.invalid((), str(error), "invalid_value") from None


async def _classified_body(
    server: Server, request: ClassificationRequest, body: RequestBody
) -> tuple[Served, Question, _Classified]:
    body.share.take(bytes_of_task(request.task, request.texts, request.level))
    served, task = await _task(server, request)
    classified = await _classified(served, task, request.texts, body, request.allow_blank)
    return served, task, classified


@dataclass(frozen=True, slots=True)
class _Classified:
    """A decision for each text, the prompts (as many for each text), and the usage."""

    decisions: list[Decision]
    prompts: list[str]
    usage: Usage

    def answers(self, show_prompts: bool) -> Iterator[dict[str, object]]:
        per_text = len(self.prompts) // max(1, len(self.decisions))
        for index, decision in enumerate(self.decisions):
            prompts = self.prompts[index * per_text : (index + 1) * per_text]
            yield classify_wire.answer(decision, prompts if show_prompts else ())


async def _classified(
    served: Served, task: Question, texts: Sequence[str], body: RequestBody, allow_blank: bool
) -> _Classified:
    """Return the decisions; a blank text has an error unless it is allowed, and is not run."""
    prompts = await body.run(lambda: task.prompts(texts))
    errors = [None if allow_blank else blank_error(text, _ALLOWING) for text in texts]
    per_text = len(task.questions)
    valid = [prompt for n, prompt in enumerate(prompts) if errors[n // per_text] is None]
    answered: QueueResults[ClassifyResult] | QueueResults[Decision]
    if isinstance(task, Task):
        labels = await body.run(lambda: task.request(served.model).labels)
        answered = await served.questions.ask(valid, labels, task.label_sentence)
        classify = partial(task.decisions, served.model, valid, answered.results)
    else:
        own = [text for text, error in zip(texts, errors, strict=True) if error is None]
        answered = await served.questions.run(own, task.ready)
        classify = partial(iter, answered.results)

    def classified() -> _Classified:
        new = classify()
        decisions = [Decision(error=error) if error else next(new) for error in errors]
        tokens = served.tokens(valid, answered.results)
        usage = Usage(tokens, min(answered.cached_tokens, tokens), 0)
        return _Classified(decisions, prompts, usage)

    result = await body.run(classified, sum(map(len, prompts)))
    note(len(texts), result.usage)
    return result


# --------------------------------------------------------------------------- lines


async def _lines(
    server: Server, request: ClassificationRequest, task: Question, body: RequestBody
) -> AsyncIterator[bytes]:
    """Yield the answers of a stream, a block at a time; an invalid line has an error as answer.

    Each block holds the model only while it runs: a client that reads slowly holds none.
    """
    most, rows = server.settings.max_body, rows_at_once(request.task, _BLOCK)
    weight = repeats(request.task)
    try:
        while (block := await body.run(lambda: _block(body.lines, rows, most, weight))) is not None:
            if not block:  # blank lines, up to the bytes that a body may have
                continue
            with server.models.held_meanwhile():
                answers = await _answers(server, request, task, body, block)
            yield answers
    except Exception as error:  # noqa: BLE001 - the status is sent: reported as the last line
        yield msgspec.json.encode(refused(OPENAI, error).body) + b"\n"


async def _answers(
    server: Server, request: ClassificationRequest, task: Question, body: RequestBody, block: _Block
) -> bytes:
    """Return the answers to the lines of a block; ``task`` is at its level already."""
    size = 0
    for index, text in enumerate(block):
        try:
            if isinstance(text, str):
                size += bytes_of_task(request.task, [text])
        except WireError as error:
            block[index] = error
    with body.part() as share:
        await share.wait_for(size)
        texts = [text for text in block if isinstance(text, str)]
        served = await server.model_or_first(request.model)
        classified = await _classified(served, task, texts, body, request.allow_blank)

        def lines() -> bytes:
            valid = classified.answers(request.show_prompts)
            answers = [next(valid) if isinstance(text, str) else _refused(text) for text in block]
            return b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)

        return await body.run(lines, sum(map(len, texts)))


def _block(lines: IO[bytes], rows: int, most: int, weight: int) -> _Block | None:
    """Return the next texts: ``rows`` of them, or fewer at ``most`` bytes, each counted
    ``weight`` times. None at the end."""
    block: _Block = []
    left = most
    while len(block) < rows and left > 0:
        line = lines.readline(most + 1)
        if not line:
            return block or None
        left -= len(line) * (weight if line.strip() else 1)
        if len(line) > most:
            block.append(_too_long(most))
            _skip(lines, line)
        elif line.strip():
            block.append(_text(line))
    return block


def _skip(lines: IO[bytes], line: bytes) -> None:
    """Skip the rest of a line."""
    while line and not line.endswith(b"\n"):
        line = lines.readline(_SKIPPED)


def _too_long(most: int) -> WireError:
    return OPENAI.failed(413, "request_too_large", f"A line exceeds {most:,} bytes.")


def _text(line: bytes) -> str | WireError:
    try:
        return classify_wire.read_text(line)
    except WireError as error:
        return error


def _refused(error: WireError) -> dict[str, object]:
    return {"error": error_record(error)}


# --------------------------------------------------------------------------- vLLM's


async def classify_as_vllm(server: Server, body: RequestBody) -> Response:
    """Return vLLM's answer: a label and all probabilities, in the order of ``labels``.

    Source: vLLM's docs/serving, "Classification API". There the labels belong to the model; here
    they are in the request, as for ``/v1/classify``, with ``input`` for ``texts``.
    """
    request = await body.read(lambda data: classify_wire.read(_renamed(data), server.questions))
    served, task, classified = await _classified_body(server, request, body)
    return await body.run(lambda: reply(_as_vllm(served, task, classified)))


def _as_vllm(served: Served, task: Question, classified: _Classified) -> dict[str, object]:
    return {
        "id": f"classify-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": served.name,
        "data": [*_rows(task, classified.decisions)],
        "usage": usage_body(classified.usage),
    }


def _renamed(data: object) -> object:
    if not isinstance(data, dict) or "input" not in data:
        return data
    texts = data["input"]
    rest = {name: value for name, value in data.items() if name != "input"}
    return rest | {"texts": [texts] if isinstance(texts, str) else texts}


def _rows(task: Question, decisions: Sequence[Decision]) -> Iterator[dict[str, object]]:
    for index, decision in enumerate(decisions):
        probabilities = decision.raise_for_error().probabilities or {}
        yield {
            "index": index,
            "label": decision.label,
            "probs": [probabilities[label] for label in task.labels],
            "num_classes": len(task.labels),
        }
