"""Temperature and ladder against numpy, and what they promise whatever the rows say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import CalibrationError
from core_tasks.calibration import (
    Adjustment,
    batch_prior,
    fit_isotonic,
    fit_temperature,
    quality,
)
from core_tasks.calibration.temperature import COLDEST, HOTTEST

Fit = Callable[..., Adjustment]
FITS = [fit_temperature, fit_isotonic]


def too_sure(rows: int, seed: int, factor: float = 3.0) -> tuple[list[list[float]], list[int]]:
    """Rows whose gold labels are drawn from them at a temperature: they are too sure by it."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, 1.5, (rows, 4))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    gold = [int(generator.choice(4, p=share)) for share in shares]
    return (scores * factor).tolist(), gold


def nll(scores: np.ndarray, gold: list[int], temperature: float) -> float:
    scaled = scores / temperature
    top = scaled.max(axis=1, keepdims=True)
    logs = scaled - top - np.log(np.exp(scaled - top).sum(axis=1, keepdims=True))
    return float(-logs[np.arange(len(gold)), gold].mean())


def newton(scores: np.ndarray, gold: list[int]) -> float:
    """The best temperature by Newton's method on its inverse."""
    b = 0.2  # not far: from 1 it overshoots
    for _ in range(100):
        scaled = b * scores
        shares = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        mean = (shares * scores).sum(axis=1)
        slope = (scores[np.arange(len(gold)), gold] - mean).sum()
        curve = ((shares * scores**2).sum(axis=1) - mean**2).sum()
        b += slope / curve
    return float(1 / b)


@pytest.mark.parametrize("seed", range(5))
def test_the_temperature_is_that_of_newtons_method(seed: int) -> None:
    rows, gold = too_sure(150, seed)
    fitted = fit_temperature(rows, gold).temperature
    assert fitted == pytest.approx(newton(np.array(rows), gold), rel=1e-9)
    best = nll(np.array(rows), gold, fitted)
    assert best < nll(np.array(rows), gold, fitted * 1.01)
    assert best < nll(np.array(rows), gold, fitted / 1.01)


def test_a_temperature_finds_how_much_too_sure_the_rows_are() -> None:
    rows, gold = too_sure(4000, 7, factor=3.0)
    assert fit_temperature(rows, gold).temperature == pytest.approx(3.0, rel=0.05)


def test_where_all_is_right_or_wrong_the_search_ends_at_its_limits() -> None:
    rows = [[0.0, -1.0], [-1.0, 0.0]]
    assert fit_temperature(rows, [0, 1]).temperature == pytest.approx(COLDEST)
    assert fit_temperature(rows, [1, 0]).temperature == pytest.approx(HOTTEST)


def test_a_temperature_stands_on_the_prior() -> None:
    rows, gold = too_sure(100, 3)
    prior = batch_prior(rows, 1.0)
    both = fit_temperature(rows, gold, prior)
    assert both.prior == prior.prior
    assert both.temperature == pytest.approx(newton(np.array([*map(prior, rows)]), gold), rel=1e-9)


def reference_ladder(points: list[tuple[float, float]]) -> dict[float, float]:
    """Isotonic regression by its min-max formula, max over i of min over j of means."""
    xs = sorted({x for x, _ in points})
    groups = [[right for x, right in points if x == each] for each in xs]
    ladder = {}
    for place, x in enumerate(xs):
        ladder[x] = max(
            min(
                np.mean([right for group in groups[low : high + 1] for right in group])
                for high in range(place, len(xs))
            )
            for low in range(place + 1)
        )
    return {x: float(y) for x, y in ladder.items()}


@pytest.mark.parametrize("seed", range(4))
def test_the_ladder_is_that_of_the_min_max_formula(seed: int) -> None:
    rows, gold = too_sure(60, seed)
    shares = np.exp(rows) / np.exp(rows).sum(axis=1, keepdims=True)
    points = [
        (float(share.max()), float(share.argmax() == label))
        for share, label in zip(shares, gold, strict=True)
    ]
    expected = reference_ladder(points)
    knots = fit_isotonic(rows, gold).knots
    xs, ys = zip(*knots, strict=True)
    n = len(rows)
    for x, y in expected.items():
        clipped = min(max(y, 1 / (n + 2)), (n + 1) / (n + 2))
        assert np.interp(x, xs, ys) == pytest.approx(clipped, abs=1e-9)


def test_the_best_label_gets_the_ladder_and_the_others_keep_their_odds() -> None:
    adjust = Adjustment(knots=((0.5, 0.4), (0.9, 0.8)))
    shares = np.exp(adjust([math.log(p) for p in (0.7, 0.2, 0.1)]))
    assert shares == pytest.approx([0.6, 0.4 * 2 / 3, 0.4 / 3], abs=1e-12)
    # Where the ladder would put it behind the second, both have the same.
    low = np.exp(Adjustment(knots=((0.5, 0.1),))([math.log(p) for p in (0.5, 0.4, 0.1)]))
    assert low == pytest.approx([4 / 9, 4 / 9, 1 / 9], abs=1e-8)
    assert low[0] > low[1]
    # Where the others had nothing at all, they have equal parts of what is left.
    sure = np.exp(Adjustment(knots=((0.9, 0.8),))([0.0, -math.inf, -math.inf]))
    assert sure == pytest.approx([0.8, 0.1, 0.1], abs=1e-12)


def test_the_others_odds_hold_where_the_best_is_all_but_certain() -> None:
    values = Adjustment(knots=((0.9, 0.8),))([0.0, -50.0, -53.0])
    assert values[1] - values[2] == pytest.approx(3.0, abs=1e-9)
    assert math.exp(values[0]) == pytest.approx(0.8, abs=1e-12)


tables = st.integers(2, 5).flatmap(
    lambda n: st.lists(
        st.tuples(
            # Of few values, so that labels share a place.
            st.lists(st.integers(-12, 0).map(float), min_size=n, max_size=n),
            st.integers(0, n - 1),
        ),
        min_size=2,
        max_size=8,
    )
)


@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("fit", FITS)
@given(table=tables, seed=st.integers(0, 9))
def test_no_order_matters_answers_stay_and_shares_sum_to_one(
    fit: Fit, table: list[tuple[list[float], int]], seed: int
) -> None:
    rows, gold = [row for row, _ in table], [label for _, label in table]
    labels = [*range(len(rows[0]))]
    random.Random(seed).shuffle(labels)
    mixed = [[row[label] for label in labels] for row in reversed(rows)]
    try:
        one = fit(rows, gold)
    except CalibrationError:
        with pytest.raises(CalibrationError):
            fit(mixed, [labels.index(label) for label in reversed(gold)])
        return
    other = fit(mixed, [labels.index(label) for label in reversed(gold)])

    for row, turned in zip(rows, reversed(mixed), strict=True):
        values = one(row)
        assert math.fsum(map(math.exp, values)) == pytest.approx(1, abs=1e-12)
        assert other(turned) == pytest.approx([values[label] for label in labels], abs=1e-6)
        best = [place for place, value in enumerate(row) if value == max(row)]
        assert [place for place, value in enumerate(values) if value == max(values)] == best


@pytest.mark.parametrize("fit", FITS)
def test_fitting_makes_probabilities_better_on_other_rows(fit: Fit) -> None:
    rows, gold = too_sure(300, 1)
    others, their_gold = too_sure(1500, 2)
    adjust = fit(rows, gold)
    raw, fitted = quality(others, their_gold), quality([*map(adjust, others)], their_gold)
    assert fitted.accuracy == raw.accuracy
    assert fitted.calibration_error < raw.calibration_error / 4
    assert fitted.brier < raw.brier
    assert fitted.nll < raw.nll


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(
    ("rows", "gold", "message"),
    [
        ([[0.0, -1.0]], [0], "at least 2 rows, got 1"),
        ([[0.0, -1.0]] * 2, [0], "2 rows cannot be fitted to 1 gold labels"),
        ([[0.0, -1.0]] * 2, [0, 2], "Row 1 has the gold label 2, of 2 labels"),
        ([[0.0, math.nan]] * 2, [0, 1], "not a log-probability"),
        ([[-1.0, -1.0]] * 2, [0, 1], "(equal|same) probability.*nothing to fit"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused(
    fit: Fit, rows: list[list[float]], gold: list[int], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        fit(rows, gold)


def test_an_impossible_gold_label_has_no_temperature() -> None:
    with pytest.raises(CalibrationError, match="Row 1: the model gives the gold label prob"):
        fit_temperature([[0.0, -1.0], [0.0, -math.inf]], [0, 1])
    # An impossible label that is not the gold one has no say.
    assert fit_temperature([[0.0, -1.0, -math.inf]] * 3, [0, 0, 1]).temperature == pytest.approx(
        fit_temperature([[0.0, -1.0]] * 3, [0, 0, 1]).temperature
    )


def test_one_label_is_certain_whatever_is_fitted() -> None:
    assert Adjustment(knots=((0.5, 0.4),))([-7.0]) == [0.0]
