"""Level L1, isotonic: a step function from the best label's probability to its accuracy.

B. Zadrozny and C. Elkan, Transforming classifier scores into accurate multiclass probability
estimates, KDD 2002, by the algorithm of M. Ayer et al., An empirical distribution function for
sampling with incomplete information, Ann. Math. Statist. 26 (1955): pool adjacent violators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from core.errors import CalibrationError
from core_tasks.calibration.adjustment import Adjustment, Knots
from core_tasks.calibration.logspace import Row, checked_gold, checked_rows

Block = tuple[float, float, float, int]
"""The lowest and the highest probability, the number of right answers, and of all."""


def fit_isotonic(
    rows: Sequence[Row], gold: Sequence[int], base: Adjustment | None = None
) -> Adjustment:
    """Return the adjustment ``base`` followed by a step function; see `on_ladder`.

    Raises `CalibrationError` for one row, and if the best label's probability is the same in all.
    """
    start = replace(base or Adjustment(), knots=())
    scores = [start(row) for row in checked_rows(rows, 2, "An isotonic calibration")]
    places = checked_gold(gold, scores)

    # A row with tied best labels counts as partly right, whichever of them comes first.
    points = []
    for row, label in zip(scores, places, strict=True):
        best = max(row)
        tops = sum(value == best for value in row)
        points.append((min(1.0, math.exp(best)), (row[label] == best) / tops))
    if min(points)[0] == max(points)[0]:
        raise CalibrationError(
            "The best label has the same probability in every row: there is nothing to fit. Use "
            "a temperature, or another template."
        )
    return replace(start, knots=ladder(pooled(points), len(points)))


def pooled(points: Iterable[tuple[float, float]]) -> list[Block]:
    """Return the blocks of the best rising fit to ``(probability, right)``, by least squares."""
    blocks: list[Block] = []
    for x, same in groupby(sorted(points), key=lambda point: point[0]):
        values = [right for _, right in same]
        block = (x, x, math.fsum(values), len(values))
        # A block that is not above the previous one is merged with it, repeatedly.
        while blocks and blocks[-1][2] * block[3] >= block[2] * blocks[-1][3]:
            low, _, right, count = blocks.pop()
            block = (low, block[1], right + block[2], count + block[3])
        blocks.append(block)
    return blocks


def ladder(blocks: Sequence[Block], rows: int) -> Knots:
    """Return both ends of each block with its share, which is never 0 or 1.

    It is at most ``(n + 1) / (n + 2)``, Laplace's rule for n rows that are all right, so that no
    answer is certain and the log-probability of a wrong answer is finite.
    """
    least, most = 1 / (rows + 2), (rows + 1) / (rows + 2)
    knots: list[tuple[float, float]] = []
    for low, high, right, count in blocks:
        share = min(max(right / count, least), most)
        knots.extend((x, share) for x in dict.fromkeys((low, high)))
    return tuple(knots)
