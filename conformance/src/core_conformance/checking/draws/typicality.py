"""Locally typical sampling (arXiv 2202.00666), as far as noisy logits tell which tokens it leaves.

By llama.cpp's definition: the smallest set of tokens, those whose surprisal is nearest to the
entropy first, whose probability exceeds ``typical_p``; one token at least.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from core_conformance.checking.compare import log_softmax


@dataclass(frozen=True, slots=True)
class Typicality:
    """The distance of each token's surprisal from the entropy, as far as noisy logits show.

    ``slack``: what two log-probabilities may be apart. ``reach``: two distances that differ
    by at most this may come in either order.
    """

    row: Sequence[float]
    chances: list[float]
    distances: list[float]
    slack: float
    reach: float

    @classmethod
    def of(cls, row: Sequence[float], slack: float) -> Typicality:
        """Measure a row of logits."""
        logprobs = log_softmax(row)
        chances = [math.exp(value) for value in logprobs]
        known = [
            (chance, -value) for chance, value in zip(chances, logprobs, strict=True) if chance
        ]
        entropy = math.fsum(chance * surprisal for chance, surprisal in known)
        distances = [abs(-value - entropy) for value in logprobs]

        # Logits that move by t move the entropy by at most t times the mean distance from it.
        spread = math.fsum(chance * abs(surprisal - entropy) for chance, surprisal in known)
        return cls(row, chances, distances, slack, slack * (2 + spread))

    def mass_before(self, token: int) -> float:
        """Return the probability of the tokens certainly nearer to the entropy than this one."""
        border = self.distances[token] - self.reach
        pairs = zip(self.distances, self.chances, strict=True)
        return math.fsum(chance for distance, chance in pairs if distance < border)

    def shuts_out(self, typical_p: float) -> bool:
        """Return whether ``typical_p`` keeps out a token for certain."""
        farthest = max(range(len(self.row)), key=self.distances.__getitem__)
        return self.mass_before(farthest) > typical_p + self.slack

    def best_kept(self, typical_p: float) -> float:
        """Return the largest logit of what ``typical_p`` leaves for certain.

        -infinity for nothing.
        """
        border, mass = math.inf, 0.0
        for distance, chance in sorted(zip(self.distances, self.chances, strict=True)):
            mass += chance
            if mass > typical_p - self.slack:
                border = distance - self.reach
                break
        pairs = zip(self.row, self.distances, strict=True)
        return max((logit for logit, distance in pairs if distance < border), default=-math.inf)

    def kept(self, typical_p: float) -> tuple[set[int], set[int]]:
        """Return the tokens that ``typical_p`` leaves for certain, and those that it may leave."""
        order = sorted(range(len(self.distances)), key=self.distances.__getitem__)
        distances = [self.distances[token] for token in order]
        masses = [0.0, *accumulate(self.chances[token] for token in order)]

        certain, possible = set[int](), set[int]()
        for token, distance in zip(order, distances, strict=True):
            if masses[bisect_left(distances, distance - self.reach)] > typical_p + self.slack:
                break
            possible.add(token)
            nearer = masses[bisect_right(distances, distance + self.reach)] - self.chances[token]
            if nearer <= typical_p - self.slack:
                certain.add(token)
        return certain, possible
