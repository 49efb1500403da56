"""The test of draws: no false alarm at any size, and teeth where a few hundred draws have them."""

from __future__ import annotations

import math
from random import Random

import pytest

from core_conformance.checking.compare import log_softmax
from core_conformance.checking.draws.multinomial import ALARM, relative_entropy, surprise, threshold

SIZE = 300
LOGITS = [4.0 * math.sin(token * 1.7) - 0.01 * token for token in range(SIZE)]


def logprobs(temperature: float) -> list[float]:
    return log_softmax([value / temperature for value in LOGITS])


def draws(temperature: float, count: int, seed: int) -> list[int]:
    weights = [math.exp(value) for value in logprobs(temperature)]
    return Random(seed).choices(range(SIZE), weights, k=count)


@pytest.mark.parametrize("count", [1, 8, 64, 400])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0, 1e30])
def test_sound_draws_are_never_surprising(temperature: float, count: int) -> None:
    expected = logprobs(temperature)
    assert not any(surprise(expected, draws(temperature, count, seed), 0.0) for seed in range(40))


@pytest.mark.parametrize("bins", [2, 5, 10])
@pytest.mark.parametrize("count", [3, 50])
def test_the_bound_holds_at_levels_that_can_be_counted(bins: int, count: int) -> None:
    """At a level of one in twenty, at most one in twenty is beyond; here it is far less."""
    random, shares = Random(bins), [2.0 ** -(place + 1) for place in range(bins)]
    shares = [share / math.fsum(shares) for share in shares]
    beyond, limit = 0, threshold(bins, 0.05)
    for _ in range(2000):
        seen = random.choices(range(bins), shares, k=count)
        parts = [seen.count(place) / count for place in range(bins)]
        beyond += count * relative_entropy(parts, shares) > limit
    assert beyond <= 100


def test_the_threshold_is_where_the_bound_is() -> None:
    for bins in (2, 10):
        free, reach = bins - 1, threshold(bins)
        assert (math.e * reach / free) ** free * math.exp(-reach) == pytest.approx(ALARM, rel=1e-3)
    assert math.exp(-threshold(1)) == pytest.approx(ALARM, rel=1e-3)


@pytest.mark.parametrize(("drawn", "expected"), [(2.0, 5.0), (2.0, 100.0), (5.0, 1.0), (1.0, 0.5)])
def test_another_temperature_shows_in_a_few_hundred_draws(drawn: float, expected: float) -> None:
    assert all(surprise(logprobs(expected), draws(drawn, 400, seed), 0.0) for seed in range(20))


def test_ids_that_are_never_drawn_show() -> None:
    drawn = [token for token in draws(1e30, 600, 1) if token < SIZE * 3 // 4]
    assert surprise(logprobs(1e30), drawn, 0.0).startswith("tokens in 10 groups")


def test_what_cannot_be_drawn_needs_no_statistics() -> None:
    row = [0.0, 0.0, -math.inf]
    assert (
        surprise(log_softmax(row), [0, 1, 2], 9.0) == "token 2 was drawn, which has no probability"
    )
    assert surprise(log_softmax(row), [0, 1, 0], 0.0) == ""


def test_noise_within_the_slack_is_no_surprise_however_many_are_drawn() -> None:
    tolerance = 0.1
    moved = [value + math.copysign(tolerance, value - 3) for value in LOGITS]
    weights = [math.exp(value) for value in log_softmax(moved)]
    drawn = Random(3).choices(range(SIZE), weights, k=100_000)
    assert surprise(logprobs(1.0), drawn, 2 * tolerance) == ""
    assert surprise(logprobs(1.0), drawn, 0.0)
