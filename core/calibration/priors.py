"""Level L0: what a prompt prefers before it has seen the text, found without any gold label.

Each function makes an `Adjustment` of rows of log-probabilities: one row for each text, one value
for each label. What is taken off is the prior's logarithm: ``log p - strength * log prior``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from core import validate
from core.calibration.adjustment import Adjustment
from core.calibration.logspace import Row, checked_rows, log_sum, normalised
from core.errors import CalibrationError

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
"""Sentences that name nothing and judge nothing, so that what is said of them is the prompt's own.

Zhao et al. 2021 took "N/A", "[MASK]" and "". These are no sentences, and models say things of them
that they say of no text: docs/levels.md has what either costs.
"""

CONTENT_FREE_STRENGTH = 0.6
"""Part of the way, for no text says nothing at all; chosen on labelled sets: docs/levels.md."""

_FAR = 2.0

BATCH_STRENGTH = 0.75
"""Part of the way: the mean over a batch holds how frequent the labels are in it, too.

All of it (1) says that all labels are equally frequent, and takes a frequent one's due; nothing (0)
says that the prompt prefers none. AnyJev, which measured it (its docs/levels.md), takes 0.75.
"""


def batch_prior(rows: Sequence[Row], strength: float = BATCH_STRENGTH) -> Adjustment:
    """The mean of the probabilities over texts like those to come, at least two.

    H. Zhou et al., Batch calibration, ICLR 2024 (arXiv 2309.17249), where ``strength`` is the
    gamma of the variant that learns it.
    """
    return _mean(rows, strength, 2, "A batch prior")


def content_free_prior(
    rows: Sequence[Row],
    strength: float = CONTENT_FREE_STRENGTH,
    named: Sequence[Row | None] = (),
) -> Adjustment:
    """The mean of the probabilities after texts that say nothing, such as `CONTENT_FREE`.

    T. Z. Zhao et al., Calibrate before use, ICML 2021: ``W = diag(p_cf)^-1, b = 0``, which is all
    of the way. ``named`` are rows after texts that name one label each, in their order (`naming`).
    Where fewer than two of these are answered with their label, once the prior is off, the
    prompt hardly hears its text, and no prior mends that: none is taken off.
    """
    prior = _mean(rows, strength, 1, "A content-free prior")
    return prior if not named or _recognised(prior, named) > 1 else Adjustment()


def naming(labels: Sequence[str]) -> list[str]:
    """A text for each label that names it, and says nothing else."""
    return [f"It is about {label}." for label in labels]


def far_from_uniform(prior: Sequence[float]) -> tuple[int, float] | None:
    """The place and share of a label that a prior has more than twice of what the others have.

    None where there is no such label; what the others have is their mean.
    """
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
    """The labels' own log-probabilities after the template without its text.

    With it, a score is ``log P(label | prompt) - log P(label | domain)``, their pointwise mutual
    information: A. Holtzman et al., Surface form competition, EMNLP 2021, PMI_DC. It suits labels
    of unequal length: a long one is improbable in both places.
    """
    [values] = checked_rows([row], 1, "A PMI prior")
    return _prior(values, strength)


def _mean(rows: Sequence[Row], strength: float, least: int, what: str) -> Adjustment:
    """The sum, made a mean where it is normalised, in log space: 10^-400 has one, too."""
    columns = zip(*map(normalised, checked_rows(rows, least, what)), strict=True)
    return _prior([log_sum(column) for column in columns], strength)


def _prior(logs: Sequence[float], strength: float) -> Adjustment:
    checked = validate.real("strength", strength, 0.0)
    if -math.inf in logs:
        raise CalibrationError(
            f"Label {[*logs].index(-math.inf)} (from 0) is impossible in every row, so nothing is "
            "known of its prior. Give more rows, or leave the label out."
        )
    return Adjustment(prior=tuple(checked * value for value in normalised(logs)))
