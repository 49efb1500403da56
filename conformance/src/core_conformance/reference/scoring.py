"""``score``: how likely given continuations are."""

from __future__ import annotations

from core.errors import RequestError
from core.labels import label_paths
from core.types import Score
from core_conformance.reference.engine import Engine, check_text
from core_conformance.reference.language import log_softmax
from core_conformance.reference.vocabulary import encode, encode_continued


def score(engine: Engine, prompt: str, continuation: str) -> Score:
    """One pair; what is wrong with it is the score's error."""
    try:
        start, ids = _tokens(engine, prompt, continuation)
    except RequestError as error:
        return Score(error=error)
    found = []
    greedy = True
    for position, logits in enumerate(
        engine.forward([ids[:end] for end in range(start, len(ids))])
    ):
        token = ids[start + position]
        found.append(log_softmax(logits)[token])
        greedy = greedy and logits[token] == max(logits)
    return Score(sum(found), tuple(found), greedy)


def _tokens(engine: Engine, prompt: str, continuation: str) -> tuple[int, list[int]]:
    """Where the continuation begins, and the ids of both."""
    head = engine.prompt_ids(prompt)
    check_text(continuation, "continuation")
    continued = encode_continued(prompt, continuation)
    start, [path] = label_paths(head, [continued], lambda: [encode(continuation)[1:]])
    if not path:
        raise RequestError(
            f"The continuation {continuation!r:.60} adds no token behind this prompt. "
            "Give another one."
        )
    ids = [*head[:start], *path]
    engine.check_length(len(ids) - 1)  # the last token is scored and never read
    return start, ids
