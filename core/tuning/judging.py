"""How good a method is on rows that it was not fitted on, and what choosing among many is worth.

The best of many trials looks better than it is: some of its lead is luck on these rows. So the
choice itself is judged, by nested cross-validation (S. Varma, R. Simon, Bias in error estimation
when using cross-validation for model selection, BMC Bioinformatics 7:91, 2006): it is made again
on each part of the rows, and looked at on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from core.calibration import Adjustment, quality, threshold_for
from core.errors import CalibrationError
from core.labels import softmax
from core.tuning.methods import Method, Row, Said

_ERROR_RATE = 0.05  # of what is kept, in a trial's coverage

Candidate = tuple[Said, Method]


def out_of_fold(candidate: Candidate, gold: Sequence[int], folds: Sequence[int]) -> list[Row]:
    """The adjusted rows, each by what the rows of the other folds say."""
    said, method = candidate
    fit = partial(method.adjustment, said, gold=gold)
    found = left_out(said.rows, range(len(folds)), folds, fit)
    return [found[row] for row in range(len(folds))]


def left_out(
    said: Sequence[Row],
    rows: Iterable[int],
    folds: Sequence[int],
    fit: Callable[[Sequence[int]], Adjustment],
) -> dict[int, Row]:
    """Some rows by their numbers, each adjusted by what ``fit`` makes of the other folds' rows."""
    numbers = [*rows]
    found: dict[int, Row] = {}
    for fold in sorted({folds[row] for row in numbers}):
        adjust = _fitted(fit, [row for row in numbers if folds[row] != fold])
        found |= {row: adjust(said[row]) for row in numbers if folds[row] == fold}
    return found


def _fitted(fit: Callable[[Sequence[int]], Adjustment], rows: Sequence[int]) -> Adjustment:
    """What can be made of some rows; nothing where they cannot be fitted."""
    try:
        return fit(rows)
    except CalibrationError:
        return Adjustment()


def merit(rows: Sequence[Row], gold: Sequence[int]) -> tuple[float, float]:
    """What a choice goes by: how many rows are right, and then the likelihood of the gold labels.

    The larger, the better.
    """
    told = quality(rows, gold)
    return told.accuracy, -told.nll


def nested(candidates: Sequence[Candidate], gold: Sequence[int], folds: Sequence[int]) -> list[Row]:
    """The rows as the choice would have answered them, had it been made without their fold."""
    found: dict[int, Row] = {}
    everything = range(len(gold))
    for fold in sorted(set(folds)):
        inside = [row for row in everything if folds[row] != fold]
        right = [gold[row] for row in inside]
        merits = []
        for said, method in candidates:
            judged = left_out(said.rows, inside, folds, partial(method.adjustment, said, gold=gold))
            merits.append(merit([judged[row] for row in inside], right))
        said, method = candidates[merits.index(max(merits))]
        adjust = _fitted(partial(method.adjustment, said, gold=gold), inside)
        found |= {row: adjust(said.rows[row]) for row in everything if folds[row] == fold}
    return [found[row] for row in everything]


def coverage(rows: Sequence[Row], gold: Sequence[int]) -> float:
    """Return the share of the rows that can be kept at an error rate of 5 %; 0 for no threshold.

    That is a promise of 95 % of one trial, and not of the best of many.
    """
    shares = [softmax(row) for row in rows]
    best = [max(each) for each in shares]
    right = [each.index(max(each)) == label for each, label in zip(shares, gold, strict=True)]
    found = threshold_for(best, right, _ERROR_RATE)
    return 0.0 if found is None else found.coverage
