"""The fake's distribution, and sampling from it.

The answer's next character has the logit 51, every other printable ASCII character 1, and nothing
else can come. So each sampling option counts, and up to a temperature of 2 the answer comes out all
the same: another character has a chance of 1 in 10**9.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from random import Random

from core.options import GenerateConfig
from core.testing.vocabulary import PRINTABLE

_ANSWER, _OTHER = 51.0, 1.0  # logits


def draw(
    answer: int, seen: Collection[int], config: GenerateConfig, random: Random | None = None
) -> int:
    """Return a sampled token; the answer's next one is ``answer``, ``seen`` are earlier ones.

    ``random`` is the generator; without it a new one is made from the config's seed.
    """
    if config.temperature == 0 and config.repeat_penalty == 1:
        return answer
    scores = dict.fromkeys(PRINTABLE, _OTHER) | {answer: _ANSWER}
    penalty = min(max(config.repeat_penalty, 1e-30), 1e30)  # so that no score becomes infinite
    for token in scores.keys() & set(seen):
        scores[token] /= penalty

    ranked = sorted(scores, key=lambda token: (-scores[token], token))
    if config.temperature == 0:
        return ranked[0]
    kept = _filtered(ranked, scores, config)
    best = scores[ranked[0]]
    weights = [math.exp((scores[token] - best) / config.temperature) for token in kept]
    return (random or Random(config.seed)).choices(kept, weights)[0]


def logprob(token: int, answer: int) -> float:
    """Return the natural-log probability of a token before any sampling option."""
    others = len(PRINTABLE) - (answer in PRINTABLE)
    total = math.log1p(others * math.exp(_OTHER - _ANSWER))
    return -total if token == answer else _OTHER - _ANSWER - total


def _filtered(
    ranked: Sequence[int], scores: Mapping[int, float], config: GenerateConfig
) -> Sequence[int]:
    """Return the tokens that top_k, top_p and min_p keep, at temperature 1; at least one."""
    best = scores[ranked[0]]
    weights = {token: math.exp(scores[token] - best) for token in ranked}
    total, mass = math.fsum(weights.values()), 0.0
    kept: list[int] = []
    for token in ranked[: config.top_k or None]:
        past_top_p = config.top_p < 1.0 and mass >= config.top_p
        if kept and (past_top_p or weights[token] < config.min_p):
            break
        kept.append(token)
        mass += weights[token] / total
    return kept
