"""Priors against numpy, and what they promise whatever the model says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CalibrationError, InvalidOptionError
from core_tasks.calibration import (
    Adjustment,
    batch_prior,
    content_free_prior,
    far_from_uniform,
    pmi_prior,
)

RANDOM = np.random.default_rng(20)
ROWS = RANDOM.normal(-6, 4, (40, 5))
scores = st.floats(-60, 0)
Prior = Callable[..., Adjustment]


def softmax(rows: np.ndarray) -> np.ndarray:
    shares = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def tables(rows: int = 6) -> st.SearchStrategy[list[list[float]]]:
    return st.integers(2, 5).flatmap(
        lambda n: st.lists(st.lists(scores, min_size=n, max_size=n), min_size=2, max_size=rows)
    )


@pytest.mark.parametrize("fit", [batch_prior, content_free_prior])
@pytest.mark.parametrize("strength", [0.0, 0.75, 1.0, 1.5])
def test_a_mean_prior_is_that_of_numpy(fit: Prior, strength: float) -> None:
    adjust = fit(ROWS.tolist(), strength)
    expected = softmax(ROWS - strength * np.log(softmax(ROWS).mean(axis=0)))
    for row, shares in zip(ROWS.tolist(), expected, strict=True):
        assert np.exp(adjust(row)) == pytest.approx(shares, abs=1e-12, rel=1e-9)


def test_pmi_takes_off_what_the_labels_are_without_the_text() -> None:
    domain, row = [-2.0, -9.0, -4.0], [-3.0, -9.5, -4.5]
    adjust = pmi_prior(domain)
    assert np.exp(adjust(row)) == pytest.approx(softmax(np.subtract(row, domain)), rel=1e-12)
    assert max(range(3), key=adjust(row).__getitem__) != max(range(3), key=row.__getitem__)


def test_a_default_strength_is_part_of_the_way() -> None:
    rows = ROWS.tolist()
    assert batch_prior(rows) == batch_prior(rows, 0.75) != batch_prior(rows, 1.0)
    assert (
        content_free_prior(rows) == content_free_prior(rows, 0.6) != content_free_prior(rows, 1.0)
    )


@given(tables(), st.data())
def test_a_constant_prior_cancels_exactly(rows: list[list[float]], data: st.DataObject) -> None:
    """A model that adds the same to a label in every prompt: PMI takes off what it added."""
    labels = len(rows[0])
    bias = data.draw(st.lists(st.floats(-20, 20), min_size=labels, max_size=labels))
    biased = [[value + extra for value, extra in zip(row, bias, strict=True)] for row in rows]
    plain = pmi_prior([0.0] * labels)
    for row, changed in zip(rows, biased, strict=True):
        assert pmi_prior(bias)(changed) == pytest.approx(plain(row), abs=1e-9)


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=6))
def test_a_model_that_only_has_a_preference_is_left_with_none(bias: list[float]) -> None:
    for adjust in (batch_prior([bias, bias], 1.0), content_free_prior([bias], 1.0)):
        assert adjust(bias) == pytest.approx([-math.log(len(bias))] * len(bias), abs=1e-9)


@given(tables(), st.randoms(use_true_random=False), st.floats(0, 2))
def test_no_order_matters_and_shares_sum_to_one(
    rows: list[list[float]], random: object, strength: float
) -> None:
    labels = [*range(len(rows[0]))]
    random.shuffle(labels)  # type: ignore[attr-defined]
    turned = [[row[label] for label in labels] for row in reversed(rows)]
    one, other = batch_prior(rows, strength), batch_prior(turned, strength)
    for row, mixed in zip(rows, reversed(turned), strict=True):
        values = one(row)
        assert math.fsum(map(math.exp, values)) == pytest.approx(1, abs=1e-12)
        assert other(mixed) == pytest.approx([values[label] for label in labels], abs=1e-9)


def test_a_prior_stays_where_fewer_than_two_named_labels_are_found() -> None:
    free, right = [[0.0, -3.0, -3.0]], [[0.0, -9.0, -9.0], [0.0, -1.0, -3.0], [0.0, -3.0, -3.0]]
    prior = content_free_prior(free)
    assert prior(right[1]).index(max(prior(right[1]))) == 1
    assert content_free_prior(free, named=right) == prior  # the first two, though not the third
    for named in (right[:1] + right[2:] + right[2:], [None, *right[1:]]):
        assert content_free_prior(free, named=named) == Adjustment()


def test_a_prior_is_far_from_uniform_where_a_label_has_twice_what_the_others_have() -> None:
    def far(*shares: float) -> tuple[int, float] | None:
        farthest = far_from_uniform([math.log(share) - 3 for share in shares])
        return farthest and (farthest[0], round(farthest[1], 6))

    assert far_from_uniform([]) is None
    assert far(0.2, 0.2, 0.3, 0.3) is None
    assert far(0.65, 0.35) is None
    assert (far(0.2, 0.2, 0.6), far(0.69, 0.31)) == ((2, 0.6), (0, 0.69))


def test_an_improbable_label_has_a_prior_and_an_impossible_one_none() -> None:
    adjust = content_free_prior([[0.0, -2000.0]], 1.0)
    assert adjust([0.0, -2000.0]) == pytest.approx([-math.log(2)] * 2)
    assert adjust([0.0, -math.inf])[1] == -math.inf
    assert adjust([-math.inf, -math.inf]) == [-math.log(2)] * 2
    with pytest.raises(CalibrationError, match=r"Label 1 .* probability 0 in every row"):
        content_free_prior([[0.0, -math.inf]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least 2 rows, got 0"),
        ([[-1.0, -2.0]], "at least 2 rows, got 1"),
        ([[-1.0, -2.0], [-1.0]], "Row 1 has 1 log-probabilities for 2"),
        ([[-1.0, -2.0], [-1.0, math.nan]], "Row 1 has a value that is not a log-probability"),
        ([[-1.0, math.inf], [-1.0, 0.0]], "Row 0 has a value that is not a log-probability"),
        ([[], []], "these are empty"),
    ],
)
def test_rows_that_say_nothing_are_refused(rows: list[list[float]], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        batch_prior(rows)


@pytest.mark.parametrize("strength", [-0.1, math.nan, math.inf, "all"])
def test_a_strength_is_a_number_from_zero_up(strength: float) -> None:
    with pytest.raises(InvalidOptionError, match="strength"):
        batch_prior([[0.0, -1.0]] * 2, strength)


def test_an_adjustment_refuses_rows_and_parameters_that_are_none() -> None:
    adjust = pmi_prior([0.0, -1.0])
    with pytest.raises(CalibrationError, match="3 log-probabilities for 2 labels"):
        adjust([0.0, -1.0, -2.0])
    with pytest.raises(CalibrationError, match="not a log-probability"):
        adjust([0.0, math.nan])
    for broken in (
        {"prior": (math.nan,)},
        {"temperature": 0.0},
        {"temperature": math.inf},
        {"knots": ((0.5, 0.9), (0.6, 0.8))},
        {"knots": ((0.5, 0.5), (0.5, 0.6))},
        {"knots": ((0.5, 1.5),)},
        {"knots": ((0.5, 0.0),)},
    ):
        with pytest.raises(CalibrationError):
            Adjustment(**broken)
