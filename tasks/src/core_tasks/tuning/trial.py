"""Result of a tuning: a trial for each candidate and level, the best first, and a fitted task."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from core.records import html_table, number
from core_tasks.calibration import Level, Threshold
from core_tasks.task import Task


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected quality of the choice among all trials, by nested cross-validation.

    ``accuracy`` and its ``interval`` (95 %, Wilson) are the expected ones of ``Tuning.best`` on
    other texts like these; the best trial's own are too optimistic.
    """

    accuracy: float
    interval: tuple[float, float]
    calibration_error: float
    brier: float
    nll: float

    def to_dict(self) -> dict[str, object]:
        """Return the metrics for JSON."""
        return {
            "accuracy": self.accuracy,
            "accuracy_interval": [*self.interval],
            "calibration_error": self.calibration_error,
            "brier": self.brier,
            "nll": number(self.nll),
        }


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate at one level, evaluated on rows that it was not fitted on.

    ``task`` is the uncalibrated candidate, and ``method`` its calibration method, as in
    `core_tasks.Calibration.method`. With gold labels it has: ``accuracy`` with its ``interval``
    (95 %, Wilson), the calibration error (15 bins), ``brier``, ``nll``, and ``coverage``, the share
    of the rows accepted at an error rate of 5 % (with 95 % confidence).

    ``label_mass`` is the mean probability that any label follows, None with a model of label
    sentences, ``margin`` the mean lead of the
    chosen one, ``stability`` the share of the texts whose label is the one given by most of the
    other trials. ``rows_per_second`` is the candidate's.
    """

    task: Task
    level: Level
    method: str
    label_mass: float | None
    margin: float
    stability: float
    rows_per_second: float
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    calibration_error: float | None = None
    brier: float | None = None
    nll: float | None = None
    coverage: float | None = None

    @property
    def label_sentence(self) -> str | None:
        """The candidate's label sentence; None with a model that has a label mass instead."""
        return self.task.label_sentence if self.label_mass is None else None

    @property
    def candidate(self) -> str:
        """The template, the label sentence, or both, without the template that is the text."""
        template, sentence = self.task.template, self.label_sentence
        if sentence is None or template == "{text}":
            return sentence or template
        return f"{template} | {sentence}"

    def to_dict(self) -> dict[str, object]:
        """Return the trial for JSON."""
        return {
            "template": self.task.template,
            "label_sentence": self.label_sentence,
            "words": {label: [*alternatives] for label, alternatives in self.task.words.items()},
            "level": self.level,
            "method": self.method,
            "accuracy": self.accuracy,
            "accuracy_interval": None if self.interval is None else [*self.interval],
            "calibration_error": self.calibration_error,
            "brier": self.brier,
            "nll": number(self.nll),
            "coverage": self.coverage,
            "label_mass": self.label_mass,
            "margin": self.margin,
            "stability": self.stability,
            "rows_per_second": self.rows_per_second,
        }


@dataclass(frozen=True, slots=True)
class Tuning:
    """All ``trials``, the best first, and ``best``: its task, fitted on all rows.

    ``expected`` is the expected quality of the choice; None without gold labels, when trials are
    only ranked by weak signs. ``rows`` is the number of texts used, ``left_out`` of skipped ones.
    ``threshold`` is the best task's, if an error rate was given, found on other rows than these.
    """

    trials: tuple[Trial, ...]
    best: Task
    expected: Expectation | None
    rows: int
    left_out: int = 0
    _shown: int = field(default=20, repr=False)
    threshold: Threshold | None = None

    @property
    def by_candidate(self) -> tuple[Trial, ...]:
        """The best trial of each candidate, the best first."""
        best: list[Trial] = []
        for trial in self.trials:
            if all(trial.task != other.task for other in best):
                best.append(trial)
        return tuple(best)

    def to_dict(self) -> dict[str, object]:
        """Return the table for JSON."""
        return {
            "rows": self.rows,
            "left_out": self.left_out,
            "expected": None if self.expected is None else self.expected.to_dict(),
            "trials": [trial.to_dict() for trial in self.trials],
            "threshold": None if self.threshold is None else asdict(self.threshold),
        }

    def _repr_html_(self) -> str:
        """Return an HTML table of the best trials for notebooks."""
        head = ["template", "method", "accuracy", "calibration error", "label mass", "stability"]
        rows = [
            [
                trial.candidate,
                trial.method,
                "" if trial.accuracy is None else f"{100 * trial.accuracy:.1f} %",
                "" if trial.calibration_error is None else f"{trial.calibration_error:.3f}",
                "" if trial.label_mass is None else f"{trial.label_mass:.3f}",
                f"{100 * trial.stability:.0f} %",
            ]
            for trial in self.trials[: self._shown]
        ]
        return html_table(head, rows)
