"""Checks of ids that no text has, which are read unchanged, and of samples without a seed."""

from __future__ import annotations

from typing import cast

from core.extensions import TokenPrompts
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import near
from core_conformance.checking.subject import Subject


@check(
    "tokens.repeated-first",
    "Ids MUST be read unchanged, also where a text's first one, such as BOS, comes twice, or "
    "later: parts score what the whole does, and all are counted",
    Capability.TOKEN_PROMPTS,
    Capability.TOKENIZING,
    broad=True,
)
def ids_are_read_unchanged(subject: Subject) -> None:
    model, first, *rest = _model(subject), *tokenizing(subject).encode(ask.PLAIN[0])
    for ids in ([first, first, *rest], [first, *rest, first, first, *rest[:2]]):
        [whole] = model.score_tokens([ids[:1]], [ids[1:]])
        ends = range(2, len(ids))
        parts = model.score_tokens([ids[:end] for end in ends], [ids[end:] for end in ends])
        for end, part in zip(ends, parts, strict=True):
            wanted = whole.token_logprobs[end - 1 :]
            must(
                len(part.token_logprobs) == len(wanted)
                and all(map(lambda a, b: near(subject, a, b), wanted, part.token_logprobs)),
                f"the ids {ids[end:]} after {ids[:end]} score {part.token_logprobs!r:.200}, and "
                f"{wanted!r:.200} where more of them are scored",
            )
        stream = model.stream_tokens(ids, max_tokens=1)
        stream.text()
        count = stream.metrics.prompt_tokens
        must(count == len(ids), f"stream_tokens of {len(ids)} ids counts {count} prompt_tokens")


def _model(subject: Subject) -> TokenPrompts:
    return cast("TokenPrompts", subject.model)
