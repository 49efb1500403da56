"""The threshold that keeps a wanted error rate, and the sentence that says what is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence

import click

from core.calibration import Threshold
from core.calibration.thresholds import fewest_rows
from core.cli import output
from core.tasks.folds import text_key


def warn_of_repeats(texts: Sequence[str]) -> None:
    """Warn where rows repeat a text: no promise is known to hold for copies."""
    if repeats := len(texts) - len({text_key(text) for text in texts}):
        output.warn(
            f"{output.counted(repeats, 'row')} repeat the text of another row. --error-rate takes "
            "rows that were drawn independently, and copies go wrong together: leave them out."
        )


def value_of(threshold: Threshold | None, error_rate: float) -> float:
    """Return the value of a threshold, and say what it promises.

    Raises `click.ClickException` where there is none.
    """
    if threshold is None:
        raise click.ClickException(
            f"No threshold is known to keep an error rate of {error_rate:g}: that takes "
            f"{math.ceil(fewest_rows(error_rate))} rows without an error, or more rows with "
            "few. Give more rows, or a larger --error-rate."
        )
    output.say(
        f"accepted from {threshold.value:.4f}: {threshold.kept} of "
        f"{output.counted(threshold.rows, 'row')}, {threshold.errors} of them wrong. Of rows drawn "
        f"as these were, at most {100 * error_rate:g} % of the accepted are wrong, with "
        f"{100 * threshold.confidence:g} % confidence."
    )
    return threshold.value
