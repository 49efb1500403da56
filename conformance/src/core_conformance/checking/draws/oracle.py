"""The contract for one draw: the tokens allowed, their probabilities and logprobs.

Worked out from a row of logits, the tokens so far and the options: repeat penalty, typical_p,
top_p, min_p and top_k at temperature 1, then temperature. The logits may be off by the tolerance:
a token near a border may come and may stay away, and every probability here is a bound.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import accumulate, compress

from core.options import GenerateConfig
from core_conformance.checking.compare import log_total
from core_conformance.checking.draws.typicality import Typicality

_ROUNDING = 1e-4  # of sums of float32, in log-probability
_EDGE = 1e-6  # in probability: whether the token at which a mass is reached belongs to it


class Ranking:
    """Scores in order, and the mass of the best ones, where the best of all has the mass 1."""

    def __init__(self, scores: Iterable[float], best: float) -> None:
        self._rising = sorted(scores)
        falling = (math.exp(score - best) for score in reversed(self._rising))
        self._masses = [0.0, *accumulate(falling)]

    @property
    def total(self) -> float:
        """The mass of all."""
        return self._masses[-1]

    @property
    def best(self) -> float:
        """The largest score; -infinity of none."""
        return self._rising[-1] if self._rising else -math.inf

    def above(self, score: float) -> tuple[int, float]:
        """Return the number of larger scores, and their mass."""
        count = len(self._rising) - bisect_right(self._rising, score)
        return count, self._masses[count]

    def from_(self, score: float) -> tuple[int, float]:
        """Return the number of scores that are as large at least, and their mass."""
        count = len(self._rising) - bisect_left(self._rising, score)
        return count, self._masses[count]


class Step:
    """One draw. ``scores`` are the penalised logits; ``slack``: two may be so far off together."""

    def __init__(
        self,
        row: Sequence[float],
        seen: Collection[int],
        config: GenerateConfig,
        tolerance: float,
    ) -> None:
        self.row, self.config = row, config
        penalty = config.repeat_penalty if seen else 1.0
        self.scores = penalised(row, seen, penalty)
        self.slack = 2 * tolerance * max(penalty, 1 / penalty) + _ROUNDING

    def logprob(self, token: int) -> float:
        """Return the logprob that is reported: the model's own, whatever the options."""
        return self.row[token] - log_total(self.row)

    def forbids(self, token: int) -> str:
        """Return the option for which this token cannot be drawn; "" for one that can."""
        config, score = self.config, self.scores[token]
        if config.temperature == 0:
            return "" if score >= max(self.scores) - self.slack else "temperature=0"
        if self._typical and token not in self._typical[1]:
            return f"typical_p={config.typical_p:g}"
        return self._cuts(score)

    def tail(self, token: int) -> float:
        """Return an upper bound on the probability of a draw at most as likely as this token's."""
        limit = self.scores[token] + self.slack
        return self._share(score <= limit for score in self.scores)

    def head(self, token: int) -> float:
        """Return an upper bound on the probability of a draw at least as likely as this token's."""
        limit = self.scores[token] - self.slack
        return self._share(score >= limit for score in self.scores)

    def shares(self) -> dict[int, tuple[float, float]]:
        """Return the least and the largest probability of every token that may be drawn."""
        heat = self.config.temperature
        certain, possible = self._left()
        best = max(self.scores[token] for token in possible)
        weights = {token: math.exp((self.scores[token] - best) / heat) for token in possible}
        most, least = math.fsum(weights.values()), math.fsum(weights[token] for token in certain)
        noise = math.exp(self.slack / heat)
        shares = {}
        for token, weight in weights.items():
            low = weight / most / noise if token in certain else 0.0
            rest = least if token in certain else least + weight
            shares[token] = low, min(1.0, weight / max(rest, 1e-300) * noise)
        return shares

    def heights(self, tokens: Iterable[int]) -> dict[int, float]:
        """Return each token's score relative to the best, in units of the temperature."""
        best, heat = max(self.scores), self.config.temperature
        return {token: (self.scores[token] - best) / heat for token in tokens}

    @property
    def free(self) -> bool:
        """True if no option excludes tokens."""
        return not self._typical and not self._ranked

    @property
    def _ranked(self) -> bool:
        config = self.config
        return config.top_k > 0 or config.top_p < 1.0 or config.min_p > 0.0

    def _share(self, counted: Iterable[bool]) -> float:
        """Return an upper bound on the probability of these tokens, as if filters kept all.

        Apart from these, only the best token is known to be left.
        """
        chosen = math.fsum(compress(self._weights, counted))
        total = math.fsum(self._weights) if self.free else 1.0
        return min(1.0, chosen / total * math.exp(self.slack / self.config.temperature))

    @cached_property
    def _weights(self) -> list[float]:
        best = self._certain.best if self._typical else max(self.scores)
        heat = self.config.temperature
        return [math.exp(min(0.0, (score - best) / heat)) for score in self.scores]

    @cached_property
    def _typical(self) -> tuple[set[int], set[int]] | None:
        """The tokens that typical_p surely keeps and those that it may keep; None if it is off."""
        if self.config.typical_p == 1.0:
            return None
        return Typicality.of(self.scores, self.slack).kept(self.config.typical_p)

    @cached_property
    def _certain(self) -> Ranking:
        return self._possible if not self._typical else self._ranking(self._typical[0])

    @cached_property
    def _possible(self) -> Ranking:
        tokens = range(len(self.scores)) if not self._typical else self._typical[1]
        return self._ranking(tokens)

    def _ranking(self, tokens: Iterable[int]) -> Ranking:
        return Ranking((self.scores[token] for token in tokens), max(self.scores))

    def _cuts(self, score: float) -> str:
        """Return the option that takes away a token with this score for certain."""
        config = self.config
        if not self._ranked:
            return ""
        count, mass = self._certain.above(score + self.slack)
        if 0 < config.top_k <= count:
            return f"top_k={config.top_k}"
        if config.min_p and score < self._certain.best + math.log(config.min_p) - self.slack:
            return f"min_p={config.min_p:g}"
        share = mass / self._possible.total * math.exp(-self.slack)
        if config.top_p < 1.0 and share > config.top_p + _EDGE:
            return f"top_p={config.top_p:g}"
        return ""

    def _leaves(self, score: float) -> bool:
        """Return whether a token with this score is left for certain."""
        config = self.config
        count, mass = self._possible.from_(score - self.slack)  # itself among them
        if count <= 1 or not self._ranked:
            return True
        before = mass - math.exp(score - max(self.scores))
        share = before / max(self._certain.total, 1e-300) * math.exp(self.slack)
        return (
            (not config.top_k or count <= config.top_k)
            and (config.top_p == 1.0 or share < config.top_p - _EDGE)
            and (
                not config.min_p
                or score >= self._possible.best + math.log(config.min_p) + self.slack
            )
        )

    def _left(self) -> tuple[set[int], set[int]]:
        """Return the tokens that all filters leave for certain, and those that they may leave."""
        everything = set(range(len(self.scores)))
        certain, possible = self._typical or (everything, everything)
        left = {token for token in possible if not self._cuts(self.scores[token])}
        return {token for token in left & certain if self._leaves(self.scores[token])}, left


def penalised(row: Sequence[float], seen: Collection[int], penalty: float) -> list[float]:
    """Divide positive logits of seen tokens by the penalty, multiply negative ones."""
    scores = list(row)
    if penalty != 1.0:
        for token in set(seen):
            scores[token] *= penalty if scores[token] < 0 else 1 / penalty
    return scores


class Luck:
    """The joint probability of the draws of one generation, if each has its own chance.

    ``add`` takes for each draw a bound on a p-value. Fisher's sum of their logarithms has Gamma(n)
    for its distribution, and Chernoff's bound says how far out it is.
    """

    def __init__(self) -> None:
        self._sum, self._draws = 0.0, 0

    def add(self, chance: float) -> None:
        """Count one draw."""
        self._sum -= math.log(max(chance, 1e-300))
        self._draws += 1

    @property
    def logarithm(self) -> float:
        """An upper bound on the logarithm of the probability of so much luck, or more."""
        excess = self._sum - self._draws
        if self._draws == 0 or excess <= 0:
            return 0.0
        return -(excess - self._draws * math.log(self._sum / self._draws))
