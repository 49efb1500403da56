"""Filters and draws against their definitions, in plain Python over small vocabularies."""

from __future__ import annotations

import math
from collections import Counter

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.options import GenerateConfig
from core_mlx_native.host import float_rows, floats, ints
from core_mlx_native.sampling import (
    keep_min_p,
    keep_top_k,
    keep_top_p,
    log_total,
    penalise_repeats,
    sample,
)

logits_rows = st.lists(
    st.integers(-40, 40).map(lambda n: n / 8), min_size=2, max_size=9, unique=True
)


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def kept(filtered: mx.array) -> set[int]:
    return {i for i, value in enumerate(floats(filtered[0])) if value > -math.inf}


@given(logits_rows, st.integers(1, 10))
def test_top_k_keeps_the_k_best(row: list[float], k: int) -> None:
    best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
    assert kept(keep_top_k(mx.array([row]), k)) == set(best)


@given(logits_rows, st.floats(0.05, 0.95))
def test_top_p_keeps_the_smallest_set_that_reaches_p(row: list[float], p: float) -> None:
    probabilities = softmax(row)
    order = sorted(range(len(row)), key=lambda i: -row[i])
    reach, total = set(), 0.0
    for token in order:
        if abs(total - p) < 1e-4:
            return  # too close to the border for float32 to agree
        if total >= p:
            break
        reach.add(token)
        total += probabilities[token]
    assert kept(keep_top_p(mx.array([row]), p)) == reach


@given(logits_rows, st.floats(0.01, 0.99))
def test_min_p_keeps_what_is_likely_enough_beside_the_best(row: list[float], p: float) -> None:
    probabilities = softmax(row)
    floor = p * max(probabilities)
    if any(abs(probability - floor) < 1e-5 for probability in probabilities):
        return
    expected = {i for i, probability in enumerate(probabilities) if probability >= floor}
    assert kept(keep_min_p(mx.array([row]), p)) == expected


def test_repeat_penalty_divides_positive_and_multiplies_negative_logits_once() -> None:
    logits = mx.array([[2.0, -2.0, 3.0], [2.0, -2.0, 3.0]])
    changed = penalise_repeats(logits, [[0, 1, 1], [2]], 2.0)
    assert changed.tolist() == [[1.0, -4.0, 3.0], [2.0, -2.0, 1.5]]
    assert floats(logits[0]) == [2.0, -2.0, 3.0]  # the caller's logits are left alone


def test_temperature_zero_is_greedy_whatever_else_is_set() -> None:
    config = GenerateConfig(top_k=1, top_p=0.1, seed=3)
    assert sample(mx.array([[0.0, 5.0, 1.0]]), [[1]], config).tolist() == [1]


def test_a_seed_repeats_and_zero_is_a_seed() -> None:
    logits = mx.zeros((1, 1000))
    for seed in (0, 1, 2**64 - 1):
        config = GenerateConfig(temperature=1.0, seed=seed)
        first = sample(logits, [[1]], config).item()
        assert first == sample(logits, [[1]], config).item()
    draws = {
        sample(logits, [[1]], GenerateConfig(temperature=1.0, seed=s)).item() for s in range(30)
    }
    assert len(draws) > 20


def test_a_row_draws_what_it_would_draw_alone() -> None:
    logits = mx.random.normal((5, 200), key=mx.random.key(1))
    config = GenerateConfig(temperature=0.9, top_p=0.9, seed=7)
    together = sample(logits, [[0]] * 5, config).tolist()
    alone = [sample(logits[i : i + 1], [[0]], config).item() for i in range(5)]
    assert together == alone


def test_without_a_seed_draws_differ_between_calls_and_rows() -> None:
    config = GenerateConfig(temperature=1.0)
    tokens = ints(sample(mx.zeros((50, 1000)), [[0]] * 50, config))
    assert len(set(tokens)) > 30
    assert tokens != sample(mx.zeros((50, 1000)), [[0]] * 50, config).tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1.0}, [0.1, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        ({"temperature": 1.0, "top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"temperature": 1.0, "top_p": 0.65}, [0, 0, 3 / 7, 4 / 7]),
        ({"temperature": 1.0, "min_p": 0.4}, [0, 2 / 9, 3 / 9, 4 / 9]),
        ({"temperature": 0.5, "top_k": 2}, [0, 0, 9 / 25, 16 / 25]),
    ],
)
def test_frequencies_follow_the_distribution(
    options: dict[str, float], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.urandom", lambda size: bytes(range(size)))  # the same every run
    count = 8000
    logits = mx.log(mx.array([[0.1, 0.2, 0.3, 0.4]] * count))
    config = GenerateConfig(**options)  # type: ignore[arg-type]
    drawn = Counter(ints(sample(logits, [[0]] * count, config)))
    # Chi-square with up to 3 degrees of freedom: 21.1 has a p-value of 0.0001.
    chi = sum((drawn[i] - count * p) ** 2 / (count * p) for i, p in enumerate(expected) if p > 0)
    assert chi < 21.1
    assert all(drawn[i] == 0 for i, p in enumerate(expected) if p == 0)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000, 262_144])
def test_log_total_is_exact_for_any_vocabulary(size: int) -> None:
    logits = mx.random.normal((3, size), scale=4, key=mx.random.key(size))
    for row, found in zip(float_rows(logits), floats(log_total(logits)), strict=True):
        top = max(row)
        exact = top + math.log(math.fsum(math.exp(value - top) for value in row))
        assert found == pytest.approx(exact, abs=2e-5)


@pytest.mark.parametrize("temperature", [1e-38, 1e-46, 5e-324, 1e38, 1e39, 1e308])
def test_extreme_temperatures_keep_to_the_filters(temperature: float) -> None:
    config = GenerateConfig(temperature=temperature, top_k=1, seed=1)
    assert ints(sample(mx.array([[0.0, 1.0, 5.0]]), [[0]], config)) == [2]


@pytest.mark.parametrize("top_p", [1e-45, 1e-46, 5e-324])
def test_a_tiny_top_p_keeps_the_best_token(top_p: float) -> None:
    config = GenerateConfig(temperature=1.0, top_p=top_p, seed=1)
    assert ints(sample(mx.array([[0.0, 1.0, 5.0]]), [[0]], config)) == [2]
