"""vLLM's ``/generative_scoring``: probabilities of tokens after a query and each of its items.

Source: vLLM's ``vllm/entrypoints/openai/generative_scoring/serving.py`` and its page in
docs/serving. Query and item are tokenised separately, as there, and a BOS is prepended to the
pair. Prompts longer than the context are refused, where vLLM truncates them.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from core.extensions import Tokenizing
from core.kit.labels import softmax
from core.protocols import Capability
from core.types import Score
from core_server.access_log import note
from core_server.bounds import (
    ID_BYTES,
    MAX_ROWS,
    MAX_TOKENS,
    ROW_BYTES,
    bytes_of_text,
    refuse_beyond,
    token_ids,
)
from core_server.queues.batch_calls import Pair, ScoreCall
from core_server.queues.question_queue import QueueResults
from core_server.replies import reply
from core_server.request_body import RequestBody
from core_server.served import Served
from core_server.server import Server
from core_wires.completions import usage_body
from core_wires.errors import OPENAI
from core_wires.usage import Usage
from core_wires.values import Value, bounded

_FIELDS = {
    *("model", "query", "items", "label_token_ids", "apply_softmax", "item_first"),
    *("add_special_tokens", "request_id", "priority"),
}


@dataclass(frozen=True, slots=True)
class _ScoringRequest:
    """A parsed request: texts or ids as they came; the labels are ids."""

    query: Value
    items: Sequence[Value]
    labels: Sequence[int]
    of_labels_alone: bool
    item_first: bool
    special: bool


async def score_items(server: Server, body: RequestBody) -> Response:
    """Return a score for each item: the probability of the first label."""
    request = await body.read(_request)
    served = await server.model_or_first(request.optional("model", Value.text, ""))
    served.needs(Capability.TOKEN_PROMPTS, "scores of token ids")

    def prepare() -> tuple[_ScoringRequest, list[list[int]], list[Pair]]:
        parsed = _read(request, served.model.info.vocab_size)
        factors = {"items": len(parsed.items), "label_token_ids": len(parsed.labels)}
        body.share.take(refuse_beyond(MAX_ROWS, "rows", factors) * ROW_BYTES)
        prompts = _prompts(served.tokenizing(), parsed, body)
        return parsed, prompts, [(prompt, [label]) for prompt in prompts for label in parsed.labels]

    parsed, prompts, pairs = await body.run(prepare)
    answered = await served.questions.run(pairs, ScoreCall())
    note(len(prompts), Usage(sum(map(len, prompts))))
    return await body.run(lambda: reply(_response(served, parsed, prompts, answered)))


def _request(body: object) -> Value:
    request = bounded(body, OPENAI)
    request.only(_FIELDS)
    return request


def _response(
    served: Served,
    request: _ScoringRequest,
    prompts: Sequence[Sequence[int]],
    answered: QueueResults[Score],
) -> dict[str, object]:
    tokens = sum(map(len, prompts))
    # A prompt is in the call once for each label, and computed once: those are not cached tokens.
    computed = tokens * len(request.labels) - answered.cached_tokens
    usage = Usage(tokens, min(max(0, tokens - computed), tokens), 0)
    scores = enumerate(_scores(answered.results, request))
    return {
        "id": f"generative-scoring-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": served.name,
        "data": [{"index": n, "object": "score", "score": score} for n, score in scores],
        "usage": usage_body(usage),
    }


def _read(request: Value, vocab_size: int) -> _ScoringRequest:
    items, labels = request.need("items"), request.need("label_token_ids")
    for values in (items, labels):
        values.counted(len(values.items()), "values", 1, 1_000_000)
    priority = request.get("priority")
    if priority is not None and priority.integer() != 0:
        raise priority.wrong("Priorities are not supported. Omit the field, or set 0.")

    return _ScoringRequest(
        query=_checked(request.need("query"), vocab_size),
        items=[_checked(item, vocab_size) for item in items.items()],
        labels=token_ids(labels, vocab_size),
        of_labels_alone=request.optional("apply_softmax", Value.flag, True),
        item_first=request.optional("item_first", Value.flag, False),
        special=request.optional("add_special_tokens", Value.flag, True),
    )


def _checked(value: Value, vocab_size: int) -> Value:
    """Return the value, a text or an array of valid ids. Raises `WireError`."""
    if not isinstance(value.data, str):
        token_ids(value, vocab_size)
    return value


def _prompts(model: Tokenizing, request: _ScoringRequest, body: RequestBody) -> list[list[int]]:
    """Return the ids of each item with the query; their size is checked first."""
    leading = _leading(model)

    def ids(value: Value) -> list[int]:
        if not isinstance(value.data, str):
            return [item.integer() for item in value.items()]
        with body.part() as share:
            share.take(bytes_of_text(value.data))
            return model.encode(value.data)[len(leading) :] if value.data else []

    query, items = ids(request.query), [ids(item) for item in request.items]
    bos = leading if request.special and isinstance(request.query.data, str) else []
    tokens = len(items) * (len(bos) + len(query)) + sum(map(len, items))
    body.share.take(ID_BYTES * refuse_beyond(MAX_TOKENS, "tokens", {"tokens": tokens}))
    return [bos + (item + query if request.item_first else query + item) for item in items]


def _leading(model: Tokenizing) -> list[int]:
    """Return the BOS that every prompt begins with, as a list of ids; empty without one."""
    first = {tuple(model.encode(text)[:1]) for text in ("a", "\n", "é")}
    [*ids] = first.pop()
    return ids if not first and not model.decode(ids) else []


def _scores(results: Sequence[Score], request: _ScoringRequest) -> Iterator[float]:
    per_item = len(request.labels)
    for begin in range(0, len(results), per_item):
        logprobs = [score.raise_for_error().logprob for score in results[begin : begin + per_item]]
        yield softmax(logprobs)[0] if request.of_labels_alone else math.exp(logprobs[0])
