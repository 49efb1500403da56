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

CONTENT_FREE = ("N/A", "[MASK]", "")
"""Texts without content: those of Zhao et al. 2021."""

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


def content_free_prior(rows: Sequence[Row], strength: float = 1.0) -> Adjustment:
    """The mean of the probabilities behind texts that say nothing, such as `CONTENT_FREE`.

    T. Z. Zhao et al., Calibrate before use, ICML 2021: ``W = diag(p_cf)^-1, b = 0``.
    """
    return _mean(rows, strength, 1, "A content-free prior")


def pmi_prior(row: Row, strength: float = 1.0) -> Adjustment:
    """The labels' own log-probabilities behind the template without its text.

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
