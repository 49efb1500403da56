"""Draws against a plain reference of the definitions, and their distribution."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.errors import InvalidModelError
from core.options import GenerateConfig
from core_runtime.sequences import sampling
from core_runtime.sequences.sampling import Sampler, log_total, logprob, uniform

Row = npt.NDArray[np.float32]
SIZE = 30

# Eighths, many of them equal: exact in float32, and ties are common.
logit_rows = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=SIZE, max_size=SIZE)
configs = st.builds(
    GenerateConfig,
    temperature=st.sampled_from([0.0, 0.25, 1.0, 4.0]),
    top_k=st.sampled_from([0, 1, 3, 8, SIZE, 100]),
    typical_p=st.sampled_from([1.0, 1e-9, 0.2, 0.5, 0.95]),
    top_p=st.sampled_from([1.0, 0.05, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 0.5, 2.0]),
    seed=st.integers(0, 2**64 - 1),
)
prompts = st.lists(st.integers(0, SIZE - 1), max_size=6)


def as_row(values: Sequence[float]) -> Row:
    return np.array(values, np.float32)


def reference(row: Row, prompt: Sequence[int], config: GenerateConfig, step: int) -> int:
    """The token by the definitions, one after another, in Python."""
    logits = [float(value) for value in row]
    for token in set(prompt):
        penalty = config.repeat_penalty
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    if config.temperature == 0:
        return logits.index(max(logits))
    assert config.seed is not None
    if config.typical_p < 1.0:
        kept = typical(logits, config.typical_p)
        logits = [value if id in kept else -math.inf for id, value in enumerate(logits)]
    ids = sorted(allowed(logits, config))
    weights = [math.exp((logits[id] - max(logits)) / config.temperature) for id in ids]
    goal = uniform(config.seed, step) * math.fsum(weights)
    borders = np.cumsum(weights)
    assume(all(abs(border - goal) > 1e-9 for border in borders))
    return next(id for id, border in zip(ids, borders, strict=True) if border > goal)


def typical(logits: Sequence[float], typical_p: float) -> set[int]:
    """llama.cpp's definition: the smallest set nearest to the entropy whose mass exceeds p."""
    total = math.log(math.fsum(map(math.exp, logits)))
    surprisals = [total - value for value in logits]
    entropy = math.fsum(math.exp(-value) * value for value in surprisals)
    distances = [abs(value - entropy) for value in surprisals]
    order = sorted(range(len(logits)), key=distances.__getitem__)  # of equal ones the lowest id
    for one, next_one in itertools.pairwise(order):
        near = distances[next_one] - distances[one] < 1e-5
        assume(not near or logits[one] == logits[next_one])  # else rounding decides
    kept, mass = set[int](), 0.0
    for token in order:
        kept.add(token)
        mass += math.exp(-surprisals[token])
        assume(abs(mass - typical_p) > 1e-5)
        if mass > typical_p:
            break
    return kept


def allowed(logits: Sequence[float], config: GenerateConfig) -> set[int]:
    order = sorted(range(len(logits)), key=lambda id: (-logits[id], id))
    total = math.fsum(math.exp(value - max(logits)) for value in logits)
    chances = {id: math.exp(logits[id] - max(logits)) / total for id in order}
    kept, before = set(), 0.0
    for rank, id in enumerate(order):
        assume(config.top_p == 1.0 or abs(before - config.top_p) > 1e-9)
        within_p = config.top_p == 1.0 or before < config.top_p
        likely = logits[id] - max(logits)
        within_min = config.min_p == 0.0 or likely >= math.log(config.min_p) - 1e-6
        if within_p and within_min and (not config.top_k or rank < config.top_k):
            kept.add(id)
        before += chances[id]
    return kept


@given(logit_rows, prompts, configs, st.integers(0, 1000))
def test_draws_are_those_of_the_definitions(
    values: list[float], prompt: list[int], config: GenerateConfig, step: int
) -> None:
    row = as_row(values)
    assert Sampler(config, prompt).draw(row, step) == reference(row, prompt, config, step)
    assert row.tolist() == values  # the model's own logits stay as they are


@given(logit_rows, st.sampled_from([0.05, 0.5, 0.9, 0.999]))
def test_a_nucleus_beyond_the_first_candidates_is_found(values: list[float], top_p: float) -> None:
    whole = sampling.candidates(as_row(values), 0, top_p, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_NUCLEUS", 4)
        short = sampling.candidates(as_row(values), 0, top_p, 0.0)
    assert whole is not None
    assert short is not None
    assert short.tolist() == whole.tolist()


@given(logit_rows, st.sampled_from([1e-9, 0.2, 0.5, 0.95]))
def test_typical_tokens_beyond_the_first_candidates_are_found(
    values: list[float], typical_p: float
) -> None:
    whole = sampling.typical(as_row(values), typical_p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_NUCLEUS", 4)
        assert sampling.typical(as_row(values), typical_p).tolist() == whole.tolist()


def test_the_most_likely_token_may_be_none_of_the_typical_ones() -> None:
    row = as_row([2.0, *[0.0] * 60])  # 0.11 of the probability, and the entropy is that of the many
    typical = np.isfinite(sampling.typical(row, 0.5)).tolist()
    assert typical == [False, *[True] * 34, *[False] * 26]
    assert Sampler(GenerateConfig(typical_p=0.5), ()).draw(row, 0) == 0  # greedy looks at no filter
    first = GenerateConfig(temperature=1.0, typical_p=0.5, top_k=1, seed=0)
    assert Sampler(first, ()).draw(row, 0) == 1  # the others look at what is left


def test_draws_follow_the_distribution() -> None:
    logits = as_row([1.0, 0.0, 2.0, -1.0, 0.5])
    draws = [
        Sampler(GenerateConfig(temperature=2.0, seed=seed), ()).draw(logits, 3)
        for seed in range(4000)
    ]
    found = np.bincount(draws, minlength=5) / len(draws)
    weights = np.exp(logits.astype(np.float64) / 2.0)
    expected = weights / weights.sum()
    assert np.abs(found - expected).max() < 5 * math.sqrt(0.25 / len(draws))


def test_the_penalty_counts_what_was_drawn() -> None:
    sampler = Sampler(GenerateConfig(repeat_penalty=4.0), [2])
    row = as_row([1.0, 2.0, 4.5, -1.0])
    assert [sampler.draw(row, step) for step in range(3)] == [1, 2, 2]


def test_extreme_options_are_no_error() -> None:
    row = as_row([1.0, 3.0, 2.0])
    for changes in ({"temperature": 1e-300}, {"top_p": 1e-300}, {"min_p": 1.0}, {"top_k": 1}):
        config = GenerateConfig(**{"temperature": 1e6, "seed": 1, **changes})  # type: ignore[arg-type]
        assert Sampler(config, ()).draw(row, 0) == 1
    hot = GenerateConfig(temperature=1e308, seed=3)
    assert {Sampler(hot, ()).draw(row, step) for step in range(50)} == {0, 1, 2}
    strong = GenerateConfig(repeat_penalty=1e308)
    assert Sampler(strong, [1, 2]).draw(row, 0) == 0


def test_infinite_logits() -> None:
    row = as_row([-math.inf, 1.0, -math.inf, 1.0])
    config = GenerateConfig(temperature=1.0)
    seeds = range(40)
    drawn = {Sampler(GenerateConfig(temperature=1.0, seed=seed), ()).draw(row, 0) for seed in seeds}
    assert drawn == {1, 3}
    assert logprob(row, 0) == -math.inf
    assert logprob(row, 1) == pytest.approx(math.log(0.5))
    for broken in ([0.0, math.nan], [math.nan, 0.0], [0.0, math.inf], [-math.inf] * 2):
        with pytest.raises(InvalidModelError, match=r"logits .* NaN or infinite"):
            Sampler(config, ()).draw(as_row(broken), 0)


def test_the_total_is_right_for_large_vocabularies() -> None:
    row = np.random.default_rng(1).normal(0, 3, 262_144).astype(np.float32)
    top = float(row.max())
    exact = top + math.log(math.fsum(math.exp(value - top) for value in row.tolist()))
    assert log_total(row) == pytest.approx(exact, abs=1e-6)


def test_noise_depends_on_seed_and_step_alone() -> None:
    numbers = {uniform(seed, step) for seed in (0, 1, 2**64 - 1) for step in range(50)}
    assert len(numbers) == 150
    assert uniform(7, 3) == uniform(7, 3)
    assert all(0.0 <= number < 1.0 for number in numbers)
