"""From logits to a token: repeat penalty, typical_p, top_p, min_p, top_k, temperature, draw.

The filters look at the distribution at temperature 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from random import Random

from core.options import GenerateConfig
from core_conformance.reference.language import log_softmax

HONOURS = frozenset({"temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty"})
"""The options of `core.kit.support.REFUSABLE` that `sample` applies."""
_UNUSED = Random(0)


def generator(config: GenerateConfig) -> Random:
    """Return the random numbers of a request. Greedy decoding uses none, and seeding takes time."""
    return Random(config.seed) if config.temperature else _UNUSED


def sample(
    logits: Sequence[float], seen: Collection[int], config: GenerateConfig, random: Random
) -> int:
    """Draw one token id; ``seen`` are the tokens of prompt and output so far."""
    scores = penalised(logits, seen, config.repeat_penalty)
    if config.temperature == 0:
        return scores.index(max(scores))
    if config.typical_p < 1.0:
        scores = typical(scores, config.typical_p)
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)  # equal ones by id
    candidates = filtered(scores, ranked, config)
    best = scores[candidates[0]]
    weights = [math.exp((scores[token] - best) / config.temperature) for token in candidates]
    return random.choices(candidates, weights)[0]


def penalised(logits: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    """Divide positive logits of seen tokens by the penalty, multiply negative ones."""
    scores = list(logits)
    penalty = min(max(penalty, 1e-30), 1e30)  # so that no score becomes infinite
    for token in set(seen):
        scores[token] *= penalty if scores[token] < 0 else 1 / penalty
    return scores


def typical(scores: Sequence[float], typical_p: float) -> list[float]:
    """Return the scores, with -infinity for the tokens that typical_p drops.

    By llama.cpp's definition of locally typical sampling (arXiv 2202.00666): the smallest set of
    tokens, those whose surprisal is nearest to the entropy first, whose probability exceeds it.
    """
    logprobs = log_softmax(scores)
    entropy = -math.fsum(math.exp(value) * value for value in logprobs if value > -math.inf)
    distances = [abs(-value - entropy) for value in logprobs]

    tokens: set[int] = set()
    mass = 0.0
    for token in sorted(range(len(scores)), key=distances.__getitem__):  # equal ones by id
        tokens.add(token)
        mass += math.exp(logprobs[token])
        if mass > typical_p:
            break
    return [score if token in tokens else -math.inf for token, score in enumerate(scores)]


def filtered(
    scores: Sequence[float], ranked: Sequence[int], config: GenerateConfig
) -> Sequence[int]:
    """Return the tokens that top_p, min_p and top_k leave, best first: one at least."""
    logprobs = log_softmax(scores)
    least = config.min_p * math.exp(logprobs[ranked[0]])
    passed: list[int] = []
    mass = 0.0
    for token in ranked[: config.top_k or None]:
        likely = math.exp(logprobs[token])
        too_far = config.top_p < 1.0 and mass >= config.top_p
        if passed and (too_far or likely < least):
            break
        passed.append(token)
        mass += likely
    return passed
