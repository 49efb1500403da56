"""Calibration methods for a candidate: each makes an adjustment from the model's rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core import validate
from core.errors import CalibrationError
from core_tasks.calibration import Adjustment, Level, fit_isotonic, fit_temperature
from core_tasks.fitting import prior_of

Row = Sequence[float]
"""The labels' log-probabilities after one text."""

LEVELS: tuple[Level, ...] = ("raw", "L0", "L1")
# The default first; the second with label sentences, which follow no prompt.
_PRIORS = ("content-free", "batch", "pmi")
_PRIORS_OF_SENTENCES = ("mean", "batch", "content-free")
_FITTED = {"temperature": fit_temperature, "isotonic": fit_isotonic}


@dataclass(frozen=True, slots=True)
class Said:
    """A model's results for a candidate's prompts, with each text and without one.

    ``content_free`` are the rows for neutral texts, ``named`` the rows for texts that name the
    labels, ``domain`` the row of the prompt without its text, if it has one. ``label_mass`` is the
    mean over the texts, None with label sentences.
    """

    rows: Sequence[Row]
    content_free: Sequence[Row]
    domain: Sequence[Row]
    label_mass: float | None
    seconds: float
    named: Sequence[Row | None] = ()


@dataclass(frozen=True, slots=True)
class Method:
    """A calibration method: a prior, a fit to gold labels, both, or neither."""

    prior: str = ""
    fitted: str = ""

    @property
    def name(self) -> str:
        """The name, as in a calibration's ``method``; "raw" for neither."""
        return "+".join(filter(None, (self.prior, self.fitted))) or "raw"

    @property
    def level(self) -> Level:
        """The calibration level of the method."""
        return "L1" if self.fitted else "L0" if self.prior else "raw"

    def possible(self, answers: Said) -> bool:
        """Return whether the prior exists: its prompt does, and recognises labels in a text."""
        if self.prior == "content-free":
            return bool(prior_of(answers.content_free, self.prior, None, answers.named).prior)
        return self.prior != "pmi" or bool(answers.domain)

    def adjustment(self, answers: Said, rows: Sequence[int], gold: Sequence[int]) -> Adjustment:
        """Return the adjustment fitted on these rows only; ``gold`` has the labels of all rows.

        Raises `CalibrationError` if they cannot be fitted.
        """
        known = [answers.rows[row] for row in rows]
        sources = {"content-free": answers.content_free, "pmi": answers.domain}
        base = Adjustment()
        if self.prior:
            base = prior_of(sources.get(self.prior, known), self.prior, None, answers.named)
        if not self.fitted:
            return base
        return _FITTED[self.fitted](known, [gold[row] for row in rows], base)


def methods_of(levels: Collection[Level], with_gold: bool, sentences: bool = False) -> list[Method]:
    """Return the methods of some levels, the simplest first; without gold labels only one prior.

    ``sentences`` is for a model of label sentences.
    Raises `CalibrationError` for a level that requires gold labels if they are missing.
    """
    for level in levels:
        validate.one_of("levels", level, LEVELS)
    if "L1" in levels and not with_gold:
        raise CalibrationError("Level L1 requires gold labels. Pass some, or omit the level.")
    methods = [Method()] if "raw" in levels else []
    priors = _PRIORS_OF_SENTENCES if sentences else _PRIORS
    tried = priors if with_gold else priors[:1]
    methods += [Method(prior) for prior in tried if "L0" in levels]
    if "L1" in levels:
        methods += [Method(prior, fitted) for prior in ("", priors[0]) for fitted in _FITTED]
    return methods
