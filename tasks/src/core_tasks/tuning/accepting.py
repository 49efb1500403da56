"""The threshold of a tuned task, found on texts that had no part in choosing or fitting it."""

from __future__ import annotations

from collections.abc import Sequence

from core import validate
from core.errors import CalibrationError, EmptyPromptError, PromptTooLongError
from core.options import GenerateConfig
from core.protocols import TextModel
from core_tasks.asking import Progress
from core_tasks.calibration import Threshold, threshold_for
from core_tasks.calibration.thresholds import fewest_rows
from core_tasks.decision import Decision
from core_tasks.task import Task


def check_enough(rows: int, error_rate: float) -> None:
    """Raise `CalibrationError` for too few rows for a threshold, before the model runs."""
    needed = fewest_rows(validate.real("error_rate", error_rate, 0.0, 1.0))
    if rows < needed:
        raise CalibrationError(
            f"An error rate of {error_rate:g} requires at least {needed} rows without an error, "
            f"but the half of the texts reserved for the threshold has {rows}. Add rows, or raise "
            "the error rate."
        )


def threshold_of(
    task: Task,
    model: TextModel,
    texts: Sequence[str],
    right: Sequence[int],
    error_rate: float,
    config: GenerateConfig | None,
    progress: Progress | None = None,
) -> tuple[Threshold, int]:
    """Return a task's threshold on these texts, and how many of them failed.

    ``right`` are the indices of their labels. Raises `CalibrationError` if no threshold exists.
    """
    decisions = task.classify(model, texts, config, allow_blank=True, progress=progress)
    check_errors(decisions)
    pairs = [
        (decision, task.labels[place])
        for decision, place in zip(decisions, right, strict=True)
        if decision.error is None
    ]
    threshold = threshold_for(
        [max((decision.probabilities or {}).values()) for decision, _ in pairs],
        [decision.label == label for decision, label in pairs],
        error_rate,
    )
    if threshold is None:
        raise CalibrationError(
            f"No threshold keeps an error rate of {error_rate:g} on the {len(pairs)} rows "
            "reserved for it. Add rows, or raise the error rate."
        )
    return threshold, len(decisions) - len(pairs)


def check_errors(decisions: Sequence[Decision]) -> None:
    """Raise the first error of a text, except for empty and too long texts."""
    for place, decision in enumerate(decisions):
        if not isinstance(decision.error, EmptyPromptError | PromptTooLongError | None):
            decision.error.add_note(f"This is the error of text {place}.")
            raise decision.error
