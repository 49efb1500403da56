"""Which tokens the filters let through, where a draw alone would hardly show it."""

from __future__ import annotations

import math

import mlx.core as mx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.options import GenerateConfig
from core_mlx_native.sampling import filters, sampling
from core_mlx_native.to_python import ints


def ranked(logits: mx.array, width: int, **options: float) -> tuple[filters.Ranked, filters.Limits]:
    config = GenerateConfig(temperature=1.0, seed=0, **options)  # type: ignore[arg-type]
    limits = sampling.by_work([config])[0].limits
    return filters.rank(logits, filters.probabilities_of(logits), width), limits


def test_top_p_is_right_on_a_flat_distribution_over_a_large_vocabulary() -> None:
    """Added up one after another, 200,003 float32 are off by 210 tokens."""
    size, reach = 200_003, 180_003
    flat = mx.zeros((1, size))
    kept = filters.passing(*ranked(flat, size, top_p=0.9))
    assert abs(ints(kept.sum(axis=-1))[0] - reach) < 5


@pytest.mark.parametrize(
    ("row", "top_p", "settled"),
    [
        ([9.0, 1.0, 0.0, -1.0, 1.0, 0.0], 0.9, True),
        ([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], 0.9, False),  # more than the four are needed
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0.2, False),  # enough, but not surely the lowest ids
        ([1.0, 2.0, 2.0, 1.0, 1.0, 1.0], 0.6, False),  # the third of the four equals a fifth
        ([1.0, 2.0, 2.0, 2.0, 1.0, 1.0], 0.2, True),
    ],
)
def test_candidates_are_enough_when_a_token_among_them_is_dropped_and_beats_all_others(
    row: list[float], top_p: float, settled: bool
) -> None:
    found = filters.nucleus_is_inside(*ranked(mx.array([row]), 4, top_p=top_p))
    assert found.tolist() == [[settled]]


def test_a_filter_that_is_off_keeps_what_rounding_would_drop() -> None:
    row = mx.array([[0.0, 0.0, -18.4]])  # in float32, the first two add up to 1
    assert filters.passing(*ranked(row, 3, top_p=math.nextafter(1.0, 0.0))).tolist() == [[1, 1, 0]]
    assert filters.passing(*ranked(row, 3)).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("options", [{"top_p": 5e-324}, {"min_p": 1.0}, {"top_k": 1}])
def test_every_filter_keeps_the_best_token(options: dict[str, float]) -> None:
    row = mx.array([[0.0, 3.0, -18.4]])
    assert filters.passing(*ranked(row, 3, **options)).tolist() == [[1, 0, 0]]


@given(
    st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=9, max_size=30),
    st.sampled_from([-65536.0, -512.0, 512.0, 65536.0]),
    st.fixed_dictionaries(
        {
            "top_k": st.integers(0, 9),
            "top_p": st.floats(0.05, 1.0),
            "min_p": st.floats(0.0, 1.0),
        }
    ),
)
@example([0.0] * 8 + [0.25], -65536.0, {"top_k": 0, "top_p": 1.0, "min_p": 0.779296875})
def test_a_constant_added_to_all_logits_changes_no_filter(
    row: list[float], by: float, options: dict[str, float]
) -> None:
    for width in (4, len(row)):
        here = ranked(mx.array([row]), width, **options)
        there = ranked(mx.array([row]) + by, width, **options)
        assert filters.passing(*here).tolist() == filters.passing(*there).tolist()
        assert (
            filters.nucleus_is_inside(*here).tolist() == filters.nucleus_is_inside(*there).tolist()
        )
