"""From logits to a token: penalty, filters, temperature, draw, as `core.GenerateConfig` has them.

The filters look at the distribution at temperature 1. A draw is a function of the seed and of the
step, so what else runs in the engine changes nothing about it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from random import Random

from core.options import GenerateConfig

HONOURED = frozenset({"temperature", "top_k", "top_p", "min_p", "repeat_penalty"})


def log_softmax(logits: Sequence[float]) -> list[float]:
    """Natural-log probabilities over the vocabulary."""
    best = max(logits)
    total = best + math.log(math.fsum(math.exp(logit - best) for logit in logits))
    return [logit - total for logit in logits]


def draw(logits: Sequence[float], seen: Collection[int], config: GenerateConfig, step: int) -> int:
    """Return the token of this step. ``seen``: tokens of the prompt and of the output so far.

    Temperature 0 takes the best token, and the lowest id among equals. Otherwise ``config`` needs
    a seed; the one of a `core_runtime.request.Request` always has one.
    """
    logits = _penalised(logits, seen, config.repeat_penalty)
    if config.temperature == 0.0:
        return logits.index(max(logits))

    candidates = _filtered(logits, config)
    best = logits[candidates[0]]
    weights = [math.exp((logits[token] - best) / config.temperature) for token in candidates]
    luck = Random((config.seed or 0) << 64 | step)
    return luck.choices(candidates, weights)[0]


def _penalised(logits: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    """Positive logits of seen tokens are divided by the penalty, the others multiplied."""
    scores = list(logits)
    if penalty != 1.0:
        penalty = min(max(penalty, 1e-30), 1e30)  # no score becomes infinite
        for token in set(seen):
            scores[token] *= penalty if scores[token] < 0.0 else 1.0 / penalty
    return scores


def _filtered(logits: Sequence[float], config: GenerateConfig) -> list[int]:
    """The tokens that top_k, top_p and min_p leave, best first; the best one always."""
    ranked = sorted(range(len(logits)), key=lambda token: -logits[token])  # equal ones by id
    chances = [math.exp(logprob) for logprob in log_softmax(logits)]
    candidates, mass = ranked[:1], chances[ranked[0]]

    for token in ranked[1 : config.top_k or None]:
        reached = config.top_p < 1.0 and mass >= config.top_p
        if reached or chances[token] < config.min_p * chances[ranked[0]]:
            break
        candidates.append(token)
        mass += chances[token]
    return candidates
