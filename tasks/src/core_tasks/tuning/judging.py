"""Evaluation of a method on rows that it was not fitted on, and of the choice among many.

The best of many trials looks better than it is: some of its lead is luck on these rows. So the
choice itself is evaluated, by nested cross-validation (S. Varma, R. Simon, Bias in error estimation
when using cross-validation for model selection, BMC Bioinformatics 7:91, 2006): it is repeated on
each part of the rows, and evaluated on the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from core.errors import CalibrationError
from core.kit.labels import softmax
from core_tasks.calibration import Adjustment, quality, threshold_for
from core_tasks.tuning.methods import Method, Row, Said

_ERROR_RATE = 0.05  # of the accepted rows, in a trial's coverage

Candidate = tuple[Said, Method]


def out_of_fold(candidate: Candidate, gold: Sequence[int], folds: Sequence[int]) -> list[Row]:
    """Return the adjusted rows, each fitted on the rows of the other folds."""
    answers, method = candidate
    fit = partial(method.adjustment, answers, gold=gold)
    adjusted = left_out(answers.rows, range(len(folds)), folds, fit)
    return [adjusted[row] for row in range(len(folds))]


def left_out(
    answers: Sequence[Row],
    rows: Iterable[int],
    folds: Sequence[int],
    fit: Callable[[Sequence[int]], Adjustment],
) -> dict[int, Row]:
    """Return some rows by number, each adjusted by ``fit`` on the other folds' rows."""
    numbers = [*rows]
    adjusted: dict[int, Row] = {}
    for fold in sorted({folds[row] for row in numbers}):
        adjust = _fitted(fit, [row for row in numbers if folds[row] != fold])
        adjusted |= {row: adjust(answers[row]) for row in numbers if folds[row] == fold}
    return adjusted


def _fitted(fit: Callable[[Sequence[int]], Adjustment], rows: Sequence[int]) -> Adjustment:
    """Return the fit to some rows; an empty adjustment if they cannot be fitted."""
    try:
        return fit(rows)
    except CalibrationError:
        return Adjustment()


def merit(rows: Sequence[Row], gold: Sequence[int]) -> tuple[float, float]:
    """Return the criterion of a choice: the accuracy, then the likelihood of the gold labels.

    Larger is better.
    """
    measured = quality(rows, gold)
    return measured.accuracy, -measured.nll


def nested(candidates: Sequence[Candidate], gold: Sequence[int], folds: Sequence[int]) -> list[Row]:
    """Return the rows as answered by the choice that was made without their fold."""
    adjusted: dict[int, Row] = {}
    everything = range(len(gold))
    for fold in sorted(set(folds)):
        inside = [row for row in everything if folds[row] != fold]
        right = [gold[row] for row in inside]
        merits = []
        for answers, method in candidates:
            judged = left_out(
                answers.rows, inside, folds, partial(method.adjustment, answers, gold=gold)
            )
            merits.append(merit([judged[row] for row in inside], right))
        answers, method = candidates[merits.index(max(merits))]
        adjust = _fitted(partial(method.adjustment, answers, gold=gold), inside)
        adjusted |= {row: adjust(answers.rows[row]) for row in everything if folds[row] == fold}
    return [adjusted[row] for row in everything]


def coverage(rows: Sequence[Row], gold: Sequence[int]) -> float:
    """Return the share of the rows accepted at an error rate of 5 %; 0 without a threshold.

    The confidence of 95 % is for one trial, not for the best of many.
    """
    shares = [softmax(row) for row in rows]
    best = [max(row_shares) for row_shares in shares]
    right = [
        row_shares.index(max(row_shares)) == label
        for row_shares, label in zip(shares, gold, strict=True)
    ]
    threshold = threshold_for(best, right, _ERROR_RATE)
    return 0.0 if threshold is None else threshold.coverage
