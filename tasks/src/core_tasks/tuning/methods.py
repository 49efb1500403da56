"""Calibration methods for a candidate: each makes an adjustment from the model's rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from core import validate
from core.errors import CalibrationError
from core_tasks.calibration import Adjustment, Level, fit_isotonic, fit_strength, fit_temperature
from core_tasks.fitting import prior_of

Row = Sequence[float]
"""The labels' log-probabilities after one text."""

OF_ROWS = ("batch", "mean")
"""The priors that are fitted on the texts' own rows."""

LEVELS: tuple[Level, ...] = ("raw", "L0", "L1")
# The default first; the second with label sentences, which follow no prompt.
_PRIORS = ("content-free", "batch", "pmi")
_PRIORS_OF_SENTENCES = ("mean", "batch", "content-free")
_FITTED = {"temperature": fit_strength, "isotonic": fit_isotonic}


@dataclass(frozen=True, slots=True)
class Said:
    """A model's results for a candidate's prompts, with each text and without one.

    ``content_free`` are the rows for neutral texts, ``named`` the rows for texts that name the
    labels, ``domain`` the row of the prompt without its text, if it has one. ``label_mass`` is the
    mean over the texts, None with label sentences. ``base`` is the prior that the task has already.
    """

    rows: Sequence[Row]
    content_free: Sequence[Row]
    domain: Sequence[Row]
    label_mass: float | None
    seconds: float
    named: Sequence[Row | None] = ()
    base: Adjustment = field(default_factory=Adjustment)


@dataclass(frozen=True, slots=True)
class Method:
    """A calibration method: a prior, a fit to gold labels, both, or neither.

    A ``strength`` of the prior is kept; without one, a temperature is fitted together with it.
    """

    prior: str = ""
    fitted: str = ""
    strength: float | None = None

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

    def source(self, answers: Said) -> Sequence[Row]:
        """Return the rows that the method is fitted on: those of the texts, or of its prior."""
        of_texts = self.fitted or self.prior in OF_ROWS
        return answers.rows if of_texts else _without_text(answers, self.prior)

    def adjustment(self, answers: Said, rows: Sequence[int], gold: Sequence[int]) -> Adjustment:
        """Return the adjustment fitted on these rows only; ``gold`` has the labels of all rows.

        Raises `CalibrationError` if they cannot be fitted.
        """
        known = [answers.rows[row] for row in rows]
        base = answers.base
        if self.prior:
            own = known if self.prior in OF_ROWS else _without_text(answers, self.prior)
            base = prior_of(own, self.prior, self.strength, answers.named)
        if not self.fitted:
            return base
        fixed = self.fitted == "temperature" and self.strength is not None
        fit = fit_temperature if fixed else _FITTED[self.fitted]
        return fit(known, [gold[row] for row in rows], base)


def _without_text(answers: Said, prior: str) -> Sequence[Row]:
    return answers.domain if prior == "pmi" else answers.content_free


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
        methods += [Method(prior, fitted) for prior in ("", *priors[:2]) for fitted in _FITTED]
    return methods
