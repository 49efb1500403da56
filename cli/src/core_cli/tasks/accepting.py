"""The threshold for a target error rate, and its message."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click

from core_cli import output
from core_tasks.calibration import Threshold
from core_tasks.calibration.thresholds import fewest_rows
from core_tasks.folds import text_key


def warn_of_repeats(texts: Sequence[str]) -> None:
    """Warn of rows that repeat a text: the guarantee does not hold for duplicates."""
    if repeats := len(texts) - len({text_key(text) for text in texts}):
        output.warn(
            f"{output.counted(repeats, 'row')} repeat the text of another row. --error-rate "
            "assumes independent rows, and duplicates fail together: remove them."
        )


def value_of(threshold: Threshold | None, error_rate: float) -> float:
    """Return the value of a threshold, and print its guarantee.

    Raises `click.ClickException` for lack of a threshold.
    """
    if threshold is None:
        raise click.ClickException(
            f"No threshold guarantees an error rate of {error_rate:g}: that takes at least "
            f"{math.ceil(fewest_rows(error_rate))} rows without an error, or more rows with "
            "few errors. Pass more rows, or a larger --error-rate."
        )
    output.say(
        f"threshold {threshold.value:.4f}: {threshold.kept} of "
        f"{output.counted(threshold.rows, 'row')} accepted, {threshold.errors} of them wrong. For "
        f"rows drawn like these, at most {100 * error_rate:g} % of the accepted labels are wrong, "
        f"with {100 * threshold.confidence:g} % confidence."
    )
    return threshold.value
