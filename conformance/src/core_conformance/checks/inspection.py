"""Checks of attention keys by their positions, and of prompts that have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from core.extensions import AttentionInspector
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.subject import Subject

_APART = 1e-3  # of a key's length: what a rotation by several positions turns it by, at least
_FEW_TOKENS = 2048  # of a context that is soon exceeded
_REPEATS = "no prompt tried repeats a token: use a model whose tokenizer splits words"


@check(
    "inspection.positions",
    "Keys MUST be those after RoPE, in the order of positions: where a token is repeated, its keys "
    "of the first layer differ with the position",
    Capability.ATTENTION_INSPECTOR,
    Capability.TOKENIZING,
)
def positions_turn_keys(subject: Subject) -> None:
    inspector, compared = cast("AttentionInspector", subject.model), 0
    for prompt in ask.REPEATING:
        ids = list(tokenizing(subject).encode(prompt))
        well_formed(bool(ids), f"encode() has no ids for {prompt!r}")
        pairs = [(ids.index(token), place) for place, token in enumerate(ids)]
        repeated = [(first, place) for first, place in pairs if first < place]
        if not repeated:
            continue
        seen = inspector.inspect_attention(prompt)
        for first, place in repeated:
            turned = [
                math.dist(_at(head, first, seen.head_dim), _at(head, place, seen.head_dim))
                > _APART * math.hypot(*_at(head, first, seen.head_dim))
                for head in seen.keys[0]
            ]
            compared += 1
            must(
                any(turned),
                f"the token {ids[place]} stands at {first} and at {place} of {prompt!r}, and its "
                "keys of the first layer are the same there: they are those before RoPE",
            )
    testable(compared > 0, _REPEATS)


def _at(head: Sequence[float], place: int, size: int) -> Sequence[float]:
    return head[place * size : (place + 1) * size]
