"""The quality of probabilities against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.errors import CalibrationError
from core_tasks.calibration import quality


def test_the_measures_are_those_of_numpy() -> None:
    generator = np.random.default_rng(5)
    rows = generator.normal(0, 2, (300, 4))
    gold = generator.integers(0, 4, 300)
    shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
    best, right = shares.max(axis=1), shares.argmax(axis=1) == gold
    order, parts = np.argsort(best), np.zeros((15, 3))
    for part, rows_of_bin in zip(parts, np.array_split(order, 15), strict=True):  # of 20 rows
        apart = right[rows_of_bin] - best[rows_of_bin]
        part[:] = apart.mean(), apart.var(ddof=1) / 20, (right[rows_of_bin].sum() + 1) / 22
    squares = parts[:, 0] ** 2 - parts[:, 1]
    unsure = parts[:, 2] * (1 - parts[:, 2]) / 20
    spread = (4 * np.maximum(squares, 0) * unsure + 2 * unsure**2).sum() / 15**2
    ends = squares.mean() + 1.959964 * np.sqrt(spread) * np.array([-1, 1])
    truth = np.eye(4)[gold]

    measured = quality(rows.tolist(), gold.tolist())
    assert measured.rows == 300
    assert measured.accuracy == pytest.approx(right.mean(), abs=1e-12)
    # Sums of core_tasks.agreement are in units of 2**-30.
    assert measured.calibration_error == pytest.approx(np.sqrt(squares.mean()), abs=1e-7)
    assert measured.calibration_error_interval == pytest.approx(
        np.sqrt(np.maximum(ends, 0)), abs=1e-6
    )
    assert measured.brier == pytest.approx(((shares - truth) ** 2).sum(axis=1).mean(), abs=1e-9)
    assert measured.nll == pytest.approx(-np.log(shares[np.arange(300), gold]).mean(), abs=1e-9)


def test_an_impossible_gold_label_costs_everything() -> None:
    assert quality([[0.0, -math.inf]], [1]).nll == math.inf


def test_no_row_is_refused() -> None:
    with pytest.raises(CalibrationError, match="at least 1 row, got 0"):
        quality([], [])
