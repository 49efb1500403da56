"""Rows of log-probabilities: checked, summed and normalised without leaving log space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.errors import CalibrationError

Row = Sequence[float]
"""The natural-log probability of each label, -inf for an impossible one."""

_MOST = 1e300


def log_sum(values: Sequence[float]) -> float:
    """Return ``log(sum(exp(v)))``; -inf for no values."""
    top = max(values, default=-math.inf)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum([math.exp(value - top) for value in values]))


def normalised(row: Row) -> list[float]:
    """Return the row minus the log of its sum; equal shares if every value is -inf.

    The maximum is subtracted first, so that a large common offset does not cost precision.
    """
    top = max(row)
    if top == -math.inf:
        return [-math.log(len(row))] * len(row)
    rest = [value - top for value in row]
    total = log_sum(rest)
    return [value - total for value in rest]


def checked_row(row: Row, labels: int, place: str = "The row") -> list[float]:
    """Return the row as floats.

    Raises `CalibrationError` for another length, NaN, infinity, and values that may overflow.
    """
    values = [float(value) for value in row]
    if len(values) != labels:
        raise CalibrationError(
            f"{place} has {len(values)} log-probabilities for {labels} labels. Pass one for each "
            "label."
        )
    if not all(-_MOST <= value <= _MOST or value == -math.inf for value in values):
        raise CalibrationError(
            f"{place} has a value that is not a log-probability: {values!r:.80}. Omit the rows "
            "that failed."
        )
    return values


def checked_rows(rows: Sequence[Row], least: int, what: str) -> list[list[float]]:
    """Return all rows, each with the first one's length.

    Raises `CalibrationError`, also for fewer than ``least`` rows.
    """
    if len(rows) < least:
        raise CalibrationError(
            f"{what} requires at least {least} row{'s' * (least > 1)}, got {len(rows)}. Add rows."
        )
    labels = len(rows[0])
    if not labels:
        raise CalibrationError(f"{what} requires rows with a value per label; these are empty.")
    return [checked_row(row, labels, f"Row {place}") for place, row in enumerate(rows)]


def checked_gold(gold: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """Return the index of each row's gold label.

    Raises `CalibrationError` for an index out of range.
    """
    if len(gold) != len(rows):
        raise CalibrationError(
            f"{len(rows)} rows cannot be fitted to {len(gold)} gold labels. Pass one for each row."
        )
    for place, (label, row) in enumerate(zip(gold, rows, strict=True)):
        if not 0 <= label < len(row):
            raise CalibrationError(f"Row {place} has the gold label {label}, of {len(row)} labels.")
    return [*gold]
