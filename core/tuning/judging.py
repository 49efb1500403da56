"""How good a method is on rows that it was not fitted on, and what choosing among many is worth.

The best of many trials looks better than it is: some of its lead is luck on these rows. So the
choice itself is judged, by nested cross-validation (S. Varma, R. Simon, Bias in error estimation
when using cross-validation for model selection, BMC Bioinformatics 7:91, 2006): it is made again
on each part of the rows, and looked at on the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from core.calibration import Adjustment, quality, threshold_for
from core.errors import CalibrationError
from core.labels import softmax
from core.tuning.methods import Method, Row, Said

FOLDS = 5
_ERROR_RATE = 0.05  # of what is kept, in a trial's coverage

Candidate = tuple[Said, Method]


def folds_of(texts: Sequence[str], gold: Sequence[int] | None, count: int = FOLDS) -> list[int]:
    """The fold of each row: labels are dealt out evenly, and the rows' order does not matter."""
    order = sorted(range(len(texts)), key=lambda row: (_digest(texts[row]), texts[row]))
    dealt: dict[int, int] = {}
    found = [0] * len(texts)
    for row in order:
        label = 0 if gold is None else gold[row]
        # Each label begins one fold later than the one before it, so that folds are of one size.
        found[row] = (dealt.get(label, 0) + label) % count
        dealt[label] = dealt.get(label, 0) + 1
    return found


def out_of_fold(candidate: Candidate, gold: Sequence[int], folds: Sequence[int]) -> list[Row]:
    """The adjusted rows, each by what the rows of the other folds say."""
    found = _left_out(candidate, range(len(folds)), gold, folds)
    return [found[row] for row in range(len(folds))]


def _left_out(
    candidate: Candidate, rows: Sequence[int], gold: Sequence[int], folds: Sequence[int]
) -> dict[int, Row]:
    """The same of some rows, by their numbers."""
    said, _ = candidate
    found: dict[int, Row] = {}
    for fold in sorted({folds[row] for row in rows}):
        adjust = _fitted(candidate, [row for row in rows if folds[row] != fold], gold)
        found |= {row: adjust(said.rows[row]) for row in rows if folds[row] == fold}
    return found


def _fitted(candidate: Candidate, rows: Sequence[int], gold: Sequence[int]) -> Adjustment:
    """What a method makes of some rows; nothing where it cannot be fitted on them."""
    said, method = candidate
    try:
        return method.adjustment(said, rows, gold)
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
        for each in candidates:
            left_out = _left_out(each, inside, gold, folds)
            merits.append(merit([left_out[row] for row in inside], right))
        best = candidates[merits.index(max(merits))]
        adjust = _fitted(best, inside, gold)
        found |= {row: adjust(best[0].rows[row]) for row in everything if folds[row] == fold}
    return [found[row] for row in everything]


def coverage(rows: Sequence[Row], gold: Sequence[int]) -> float:
    """The share of the rows that can be kept at an error rate of 5 %, with 95 % confidence.

    By `core.calibration.threshold_for`; 0 where no threshold promises it.
    """
    shares = [softmax(row) for row in rows]
    best = [max(each) for each in shares]
    right = [each.index(max(each)) == label for each, label in zip(shares, gold, strict=True)]
    found = threshold_for(best, right, _ERROR_RATE)
    return 0.0 if found is None else found.coverage


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
