"""The measures of an evaluation, each a function of counts, with the source of its formula."""

from __future__ import annotations

import math
from fractions import Fraction

from core_tasks.agreement.measures import Z_95


def pass_at(k: int, samples: int, right: int) -> Fraction:
    """Return the probability that one of ``k`` samples is right: ``1 - C(n - c, k) / C(n, k)``.

    M. Chen et al., Evaluating large language models trained on code, 2021, equation 1: unbiased.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"k={k} is not valid: expected a number from 1 to {samples}, the samples.")
    return 1 - Fraction(math.comb(samples - right, k), math.comb(samples, k))


def mcnemar(first: int, second: int) -> float:
    """Return the probability of counts at least as uneven if both models are equally good.

    ``first`` items are only right with the first, ``second`` only with the second; the exact test
    of Q. McNemar, Psychometrika 12 (1947), 153-157: twice the smaller tail of the binomial
    distribution with 1/2, and 1 at most.
    """
    total = first + second
    tail = sum(math.comb(total, k) for k in range(min(first, second) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**total)))


def mean_interval(mean: float, squares: float, rows: int) -> tuple[float, float] | None:
    """Return the mean of ``rows`` shares with 1.96 standard errors on both sides, within 0 and 1.

    ``squares`` is the mean of their squares. As lm-evaluation-harness's ``stderr``, which divides
    by one row less. None for a single row.
    """
    if rows < 2:
        return None
    variance = max(0.0, squares - mean * mean) * rows / (rows - 1)
    reach = Z_95 * math.sqrt(variance / rows)
    return max(0.0, mean - reach), min(1.0, mean + reach)
