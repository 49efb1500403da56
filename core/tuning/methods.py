"""The ways to finish a candidate's labels: each makes an adjustment of rows that the model said."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core import validate
from core.calibration import Adjustment, Level, fit_isotonic, fit_temperature
from core.errors import CalibrationError
from core.tasks.fitting import prior_of

Row = Sequence[float]
"""The labels' log-probabilities behind one text."""

LEVELS: tuple[Level, ...] = ("raw", "L0", "L1")
_PRIORS = ("content-free", "batch", "pmi")  # the default first
_FITTED = {"temperature": fit_temperature, "isotonic": fit_isotonic}


@dataclass(frozen=True, slots=True)
class Said:
    """What a model said of a candidate's prompts: behind each text, and without one.

    ``content_free`` are the rows after texts that say nothing, ``named`` those after texts that
    name the labels, ``domain`` that of the prompt without its text, where there is such a prompt.
    ``label_mass`` is the mean over the texts.
    """

    rows: Sequence[Row]
    content_free: Sequence[Row]
    domain: Sequence[Row]
    label_mass: float
    seconds: float
    named: Sequence[Row | None] = ()


@dataclass(frozen=True, slots=True)
class Method:
    """A prior, what is fitted on gold labels above it, or both, or neither."""

    prior: str = ""
    fitted: str = ""

    @property
    def name(self) -> str:
        """As a calibration's ``method`` has it; "raw" for neither."""
        return "+".join(filter(None, (self.prior, self.fitted))) or "raw"

    @property
    def level(self) -> Level:
        """How finished it makes the labels."""
        return "L1" if self.fitted else "L0" if self.prior else "raw"

    def possible(self, said: Said) -> bool:
        """Tell if the prior exists: its prompt does, and finds labels that a text names."""
        if self.prior == "content-free":
            return bool(prior_of(said.content_free, self.prior, None, said.named).prior)
        return self.prior != "pmi" or bool(said.domain)

    def adjustment(self, said: Said, rows: Sequence[int], gold: Sequence[int]) -> Adjustment:
        """Fitted on these rows alone; ``gold`` are the right labels of all rows, if needed.

        Raises `CalibrationError` where they cannot be fitted.
        """
        known = [said.rows[row] for row in rows]
        sources = {"batch": known, "content-free": said.content_free, "pmi": said.domain}
        base = Adjustment()
        if self.prior:
            base = prior_of(sources[self.prior], self.prior, None, said.named)
        if not self.fitted:
            return base
        return _FITTED[self.fitted](known, [gold[row] for row in rows], base)


def methods_of(levels: Collection[Level], with_gold: bool) -> list[Method]:
    """The methods of some levels, the plain ones first; without gold labels L0 is the default.

    Raises `CalibrationError` for a level that takes gold labels where there are none.
    """
    for level in levels:
        validate.one_of("levels", level, LEVELS)
    if "L1" in levels and not with_gold:
        raise CalibrationError("Level L1 is fitted on gold labels. Give some, or leave it out.")
    found = [Method()] if "raw" in levels else []
    priors = _PRIORS if with_gold else _PRIORS[:1]
    found += [Method(prior) for prior in priors if "L0" in levels]
    if "L1" in levels:
        found += [Method(prior, fitted) for prior in ("", _PRIORS[0]) for fitted in _FITTED]
    return found
