"""Level L0: the prior of a prompt over its labels, estimated without gold labels.

Each function makes an `Adjustment` from rows of log-probabilities: one row for each text, one value
for each label. It subtracts the prior's logarithm: ``log p - strength * log prior``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core import validate
from core.errors import CalibrationError
from core_tasks.calibration.adjustment import Adjustment
from core_tasks.calibration.logspace import Row, checked_rows, log_sum, normalised

CONTENT_FREE = (
    "It is as it was.",
    "They did it again.",
    "This is the one.",
    "That was the other one.",
    "He said so.",
    "She went there.",
    "We have some of these.",
    "There were two of them.",
    "It happened once.",
    "You can see it from here.",
    "Someone asked about it.",
    "Nobody was there at that time.",
    "I have one like this.",
    "It comes with another.",
    "What is it?",
    "Is this the same as that?",
    "Let me see it.",
    "Then it came back.",
    "All of them are here.",
    "This one is about that one.",
)
"""Neutral sentences, so that the model's answer for them is the prior of the prompt.

Zhao et al. 2021 used "N/A", "[MASK]" and "". These are not sentences, and models answer them unlike
any text: docs/levels.md compares both.
"""

CONTENT_FREE_STRENGTH = 0.6
"""Below 1, since no text is entirely neutral; chosen on labelled sets: docs/levels.md."""

_FAR = 2.0

BATCH_STRENGTH = 0.75
"""Below 1, since the mean over a batch also contains the frequencies of the labels in it.

1 assumes that all labels are equally frequent, and penalises frequent ones; 0 assumes that the
prompt has no prior. AnyJev, which measured it (its docs/levels.md), uses 0.75.
"""


def batch_prior(rows: Sequence[Row], strength: float = BATCH_STRENGTH) -> Adjustment:
    """Return the mean of the probabilities over at least two texts like the ones to classify.

    H. Zhou et al., Batch calibration, ICLR 2024 (arXiv 2309.17249), where ``strength`` is the
    gamma of the variant that learns it.
    """
    return _mean(rows, strength, 2, "A batch prior")


def mean_prior(rows: Sequence[Row], strength: float = 1.0) -> Adjustment:
    """Return the mean of the log-probabilities over at least two texts like the ones to classify.

    It is the prior of a model of label sentences, whose scores differ by a constant from the
    logarithms of their softmax: with a strength of 1, each label's mean score is subtracted. Unlike
    a mean of probabilities it does not follow the few texts with the largest ones.
    """
    columns = zip(*map(normalised, checked_rows(rows, 2, "A mean prior")), strict=True)
    return _prior([math.fsum(column) / len(rows) for column in columns], strength, "a row")


def content_free_prior(
    rows: Sequence[Row],
    strength: float = CONTENT_FREE_STRENGTH,
    named: Sequence[Row | None] = (),
) -> Adjustment:
    """Return the mean of the probabilities for neutral texts, such as `CONTENT_FREE`.

    T. Z. Zhao et al., Calibrate before use, ICML 2021: ``W = diag(p_cf)^-1, b = 0``, which is a
    strength of 1. ``named`` are rows for texts that name one label each, in their order (`naming`).
    If fewer than two of these are answered with their label once the prior is subtracted, the
    prompt hardly responds to its text, which no prior can fix: none is subtracted.
    """
    prior = _mean(rows, strength, 1, "A content-free prior")
    return prior if not named or _recognised(prior, named) > 1 else Adjustment()


def naming(labels: Sequence[str]) -> list[str]:
    """Return a text for each label that only names it."""
    return [f"It is about {label}." for label in labels]


def far_from_uniform(prior: Sequence[float]) -> tuple[int, float] | None:
    """Return the index and share of a label with over twice the others' mean share, or None."""
    if len(prior) == 0:
        return None
    shares = [math.exp(value) for value in normalised(prior)]
    most = max(shares)
    far = most * (len(shares) - 1) > _FAR * (1 - most)
    return (shares.index(most), most) if far else None


def _recognised(prior: Adjustment, named: Sequence[Row | None]) -> int:
    adjusted = [None if row is None else prior(row) for row in named]
    return sum(row is not None and row.index(max(row)) == n for n, row in enumerate(adjusted))


def pmi_prior(row: Row, strength: float = 1.0) -> Adjustment:
    """Return the labels' own log-probabilities after the template without its text.

    With it, a score is ``log P(label | prompt) - log P(label | domain)``, their pointwise mutual
    information: A. Holtzman et al., Surface form competition, EMNLP 2021, PMI_DC. It suits labels
    of unequal length: a long one is improbable in both places.
    """
    [values] = checked_rows([row], 1, "A PMI prior")
    return _prior(values, strength)


def _mean(rows: Sequence[Row], strength: float, least: int, what: str) -> Adjustment:
    """Return the prior from the sum in log space, whose normalisation makes it a mean."""
    columns = zip(*map(normalised, checked_rows(rows, least, what)), strict=True)
    return _prior([log_sum(column) for column in columns], strength)


def _prior(logs: Sequence[float], strength: float, where: str = "every row") -> Adjustment:
    checked = validate.real("strength", strength, 0.0)
    if -math.inf in logs:
        raise CalibrationError(
            f"Label {[*logs].index(-math.inf)} (from 0) has probability 0 in {where}, so its "
            "prior is unknown. Add rows, or remove the label."
        )
    return Adjustment(prior=tuple(checked * value for value in normalised(logs)))
