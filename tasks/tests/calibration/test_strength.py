"""Strength and temperature fitted together: against scikit-learn and numpy, on a model's rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from core_tasks.calibration import (
    Adjustment,
    content_free_prior,
    fit_strength,
    fit_temperature,
    quality,
)
from core_tasks.calibration.strength import STRONGEST
from core_tasks.calibration.temperature import HOTTEST

FILE = Path(__file__).parent / "oracle" / "rows.json"


def rows_of_a_model() -> tuple[list[list[float]], np.ndarray[Any, Any], Adjustment]:
    stored = json.loads(FILE.read_text())
    prior = content_free_prior(stored["content_free"], named=stored["named"])
    return stored["rows"], np.array(stored["gold"]), prior


def log_softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    top = scores - scores.max(1, keepdims=True)
    return np.asarray(top - np.log(np.exp(top).sum(1, keepdims=True)))


@pytest.mark.parametrize("seed", range(5))
def test_of_two_labels_it_is_logistic_regression(seed: int) -> None:
    draw = np.random.default_rng(seed)
    ahead = draw.normal(1.0, 2.0, 400)
    gold = (draw.random(400) > 1 / (1 + np.exp(-(0.6 * ahead - 0.8)))).astype(int)
    rows = [[float(value), 0.0] for value in ahead]
    model = LogisticRegression(C=np.inf, tol=1e-10).fit(ahead[:, None], gold == 0)

    fitted = fit_strength(rows, [*map(int, gold)], Adjustment(prior=(0.9, 0.0)))
    assert 1 / fitted.temperature == pytest.approx(model.coef_[0, 0], rel=1e-4)
    shift = -(fitted.prior[0] - fitted.prior[1]) / fitted.temperature
    assert shift == pytest.approx(model.intercept_[0], rel=1e-3)


@pytest.mark.parametrize("count", [20, 60, 300])
def test_it_is_the_maximum_of_the_likelihood(count: int) -> None:
    rows, gold, prior = rows_of_a_model()
    fitted = fit_strength(rows[:count], gold[:count].tolist(), prior)
    factor = fitted.prior[0] / prior.prior[0]
    assert 0 < factor < STRONGEST
    assert np.allclose(fitted.prior, factor * np.array(prior.prior))
    raw, taken = np.array(rows[:count]), np.array(prior.prior)

    def likelihood(b: float, c: float) -> float:
        logs = log_softmax(b * raw - c * taken)
        return float(logs[np.arange(count), gold[:count]].mean())

    b = 1 / fitted.temperature
    best = likelihood(b, factor * b)
    for step in (1e-3, -1e-3):
        assert likelihood(b + step, factor * b) < best
        assert likelihood(b, factor * b + step) < best


def test_on_other_rows_more_are_right_and_the_probabilities_hold() -> None:
    """A hundred rows to fit, two hundred to judge; the means of 20 draws.

    numpy and scipy with the same rows: raw 0.648 and 0.028, prior alone 0.806 and 0.155, the
    prior's own strength 0.806 and 0.046 (NLL 0.585), both fitted 0.814 and 0.028 (NLL 0.530).
    """
    rows, gold, prior = rows_of_a_model()
    draw, measured = np.random.default_rng(0), dict[str, list[list[float]]]()
    for _ in range(20):
        order = draw.permutation(len(gold))
        some, others = order[:100], order[100:]
        known, right = [rows[n] for n in some], gold[some].tolist()
        for name, adjust in (
            ("raw", Adjustment()),
            ("prior", prior),
            ("temperature", fit_temperature(known, right, prior)),
            ("both", fit_strength(known, right, prior)),
        ):
            found = quality([adjust(rows[n]) for n in others], gold[others].tolist())
            figures = [found.accuracy, found.calibration_error, found.nll]
            measured.setdefault(name, []).append(figures)
    mean = {name: np.mean(figures, axis=0) for name, figures in measured.items()}
    assert mean["both"][0] > mean["raw"][0] + 0.15
    assert mean["both"][1] < mean["raw"][1] + 0.01
    assert mean["both"][1] < mean["prior"][1] - 0.1
    assert mean["both"][2] < mean["temperature"][2] - 0.04


def test_a_prior_that_misleads_is_left_out() -> None:
    rows, gold, prior = rows_of_a_model()
    wrong = Adjustment(prior=tuple(-value for value in prior.prior))
    fitted = fit_strength(rows, gold.tolist(), wrong)
    assert not any(fitted.prior)
    assert fitted.temperature == fit_temperature(rows, gold.tolist()).temperature


def test_rows_without_a_maximum_have_an_end() -> None:
    certain = [[0.0, -3.0], [-3.0, 0.0], [0.0, -2.0]]
    fitted = fit_strength(certain, [0, 1, 0], Adjustment(prior=(-0.1, -2.3)))
    assert fitted.temperature < 1
    noise = [[0.0, -3.0], [0.0, -3.0], [-3.0, 0.0], [-3.0, 0.0]]
    flat = fit_strength(noise, [0, 1, 0, 1], Adjustment(prior=(-0.7, -0.7)))
    assert flat.temperature == pytest.approx(HOTTEST, rel=1e-6)
    impossible = [[0.0, float("-inf")], [-1.0, 0.0], [-0.1, -2.0]]
    assert fit_strength(impossible, [0, 1, 0], Adjustment(prior=(-0.1, -2.3))).temperature > 0
