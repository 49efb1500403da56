"""Draws against a plain reference of the definitions, row by row, in mixed batches."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.options import GenerateConfig
from core_mlx_native.sampling import filters, sampling
from core_mlx_native.sampling.filters import Repeats
from core_mlx_native.sampling.sampling import RowSampling, draw, log_total, logprobs, sample
from core_mlx_native.to_python import float_rows, floats, ints
from core_runtime.request import seeded

Row = npt.NDArray[np.float32]
SIZE = 30

# Eighths, many of them equal: exact in float32, and ties are common.
logit_rows = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=SIZE, max_size=SIZE)
configs = st.builds(
    GenerateConfig,
    temperature=st.sampled_from([0.0, 0.25, 1.0, 4.0]),
    top_k=st.sampled_from([0, 1, 3, 8, SIZE, 100]),
    typical_p=st.sampled_from([1.0, 1.0, 1e-9, 0.2, 0.5, 0.95]),
    top_p=st.sampled_from([1.0, 0.05, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    repeat_penalty=st.sampled_from([1.0, 0.5, 2.0]),
    seed=st.integers(0, 2**64 - 1),
)
prompts = st.lists(st.integers(0, SIZE - 1), max_size=6)
steps = st.integers(0, 1000)
requests = st.tuples(logit_rows, prompts, configs, steps)
batches = st.lists(requests, min_size=1, max_size=6)
Request = tuple[list[float], list[int], GenerateConfig, int]


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates, so that a small vocabulary has more tokens than they are."""
    monkeypatch.setattr(sampling, "_NARROWEST", 1)
    monkeypatch.setattr(sampling, "_NUCLEUS", 4)


def drawn(batch: Sequence[Request]) -> list[int]:
    rows, prompts, configs, steps = zip(*batch, strict=True)
    repeats = Repeats.of(prompts, [config.repeat_penalty for config in configs], len(rows[0]))
    return ints(draw(repeats.penalise(mx.array(rows)), RowSampling.of(configs), steps))


def reference(request: Request) -> int:
    """The token by the definitions, in float64 but for what is compared in float32."""
    row, prompt, config, step = request
    logits = penalised(np.array(row, np.float32), prompt, config.repeat_penalty)
    if config.temperature == 0:
        return int(np.argmax(logits))
    assert config.seed is not None
    if config.typical_p < 1.0:
        kept = typical(logits.tolist(), config.typical_p)
        logits = np.where([token in kept for token in range(len(row))], logits, -np.inf)
    luck = np.array(mx.random.gumbel((len(row),), key=key(config.seed, step)))
    scores = logits / np.float32(config.temperature) + luck
    scores[~allowed(logits, config)] = -np.inf
    top = np.sort(scores)[-2:]
    assume(len(top) == 1 or top[1] - top[0] > 1e-5)  # else float32 decides
    return int(np.argmax(scores))


def key(seed: int, step: int) -> mx.array:
    return mx.random.key((seed + step * 0x9E3779B97F4A7C15) % 2**64)


def penalised(logits: Row, prompt: Sequence[int], penalty: float) -> Row:
    changed = logits.copy()
    for token in set(prompt):
        value = logits[token]
        changed[token] = value / penalty if value > 0 else value * penalty
    return changed


def typical(logits: Sequence[float], typical_p: float) -> set[int]:
    """llama.cpp's definition: the smallest set nearest to the entropy whose mass exceeds p."""
    total = math.log(math.fsum(map(math.exp, logits)))
    surprisals = [total - value for value in logits]
    entropy = math.fsum(math.exp(-value) * value for value in surprisals)
    distances = [abs(value - entropy) for value in surprisals]
    order = sorted(range(len(logits)), key=distances.__getitem__)  # of equal ones the lowest id
    for one, next_one in itertools.pairwise(order):
        near = distances[next_one] - distances[one] < 1e-4
        assume(not near or logits[one] == logits[next_one])  # else float32 decides
    kept, mass = set[int](), 0.0
    for token in order:
        kept.add(token)
        mass += math.exp(-surprisals[token])
        assume(abs(mass - typical_p) > 1e-5)
        if mass > typical_p:
            break
    return kept


def allowed(logits: Row, config: GenerateConfig) -> npt.NDArray[np.bool_]:
    """Which tokens pass the filters. The best come first, and of equal ones the lowest ids."""
    weights = np.exp(logits.astype(np.float64))
    probabilities = weights / weights.sum()
    order = np.argsort(-logits, kind="stable")
    better = np.cumsum(probabilities[order]) - probabilities[order]
    passes = np.ones(len(order), np.bool_)
    if config.top_p < 1:
        assume(np.abs(better - config.top_p).min() > 1e-5)  # else float32 decides
        passes &= better < config.top_p
    if config.min_p > 0:
        floor = config.min_p * probabilities.max() * (1 - 1e-9)
        assume(np.abs(probabilities / floor - 1)[logits < logits.max()].min(initial=1) > 1e-5)
        passes &= probabilities[order] >= floor
    if 0 < config.top_k < passes.sum():
        border = logits[order[config.top_k - 1 : config.top_k + 1]]
        assume(border[0] != border[1])  # which of equal ones stays is not defined
        passes &= np.arange(len(order)) < config.top_k
    found = np.zeros(len(order), np.bool_)
    found[order[passes]] = True
    return found


@given(requests)
def test_a_token_is_that_of_the_definitions(request: Request) -> None:
    assert drawn([request]) == [reference(request)]


@settings(max_examples=300)
@given(requests)
def test_so_it_is_when_candidates_are_fewer_than_tokens(request: Request) -> None:
    expected = reference(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_NARROWEST", 1)
        patch.setattr(sampling, "_NUCLEUS", 4)
        assert drawn([request]) == [expected]


def test_typical_tokens_are_found_in_a_large_vocabulary() -> None:
    size, reach = 200_003, 180_003  # of equally near tokens, the lowest ids
    limits = sampling.by_work([GenerateConfig(temperature=1.0, typical_p=0.9, seed=0)])[0].limits
    kept = mx.isfinite(filters.typical(mx.zeros((1, size)), limits))
    assert abs(ints(kept.sum(axis=-1))[0] - reach) < 5
    assert ints(mx.argmin(kept, axis=-1)) == ints(kept.sum(axis=-1))


def test_the_most_likely_token_may_be_none_of_the_typical_ones() -> None:
    row = [2.0, *[0.0] * 60]  # 0.11 of the probability, and the entropy is that of the many
    config = GenerateConfig(temperature=1.0, typical_p=0.5, seed=0)
    limits = sampling.by_work([config])[0].limits
    (kept,) = mx.isfinite(filters.typical(mx.array([row]), limits)).tolist()  # type: ignore[misc]
    assert kept == [False, *[True] * 34, *[False] * 26]
    greedy = GenerateConfig(typical_p=0.5, seed=0)  # looks at no filter
    first = dataclasses.replace(config, top_k=1)  # the others look at what is left
    assert drawn([(row, [], greedy, 0), (row, [], first, 0)]) == [0, 1]


@given(batches)
def test_neighbours_change_nothing(batch: list[Request]) -> None:
    alone = [drawn([request])[0] for request in batch]
    assert drawn(batch) == alone
    assert drawn(batch[::-1]) == alone[::-1]


@pytest.mark.usefixtures("short_lists")
def test_a_batch_of_every_kind_draws_as_each_row_alone() -> None:
    options: list[dict[str, float]] = [
        {},
        {"temperature": 1.0},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 0.7, "top_k": 50, "top_p": 0.8},
        {"temperature": 0.7, "top_p": 0.8, "repeat_penalty": 1.3},
        {"temperature": 0.7, "top_p": 0.99, "min_p": 0.01},
        {"temperature": 1.5, "typical_p": 0.6},
        {"temperature": 1.5, "typical_p": 0.9, "top_p": 0.7, "top_k": 20},
    ]
    made: list[GenerateConfig] = [
        GenerateConfig(seed=i, **each)  # type: ignore[arg-type]
        for i, each in enumerate(options * 4)
    ]
    logits = mx.random.normal((len(made), 500), scale=3, key=mx.random.key(0))
    batch: list[Request] = [
        (row, [1, 2, 3], config, 40 + i)
        for i, (row, config) in enumerate(zip(float_rows(logits), made, strict=True))
    ]
    assert drawn(batch) == [drawn([request])[0] for request in batch]


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 10**6)), min_size=1, max_size=5),
    st.integers(1, 33),
)
def test_noise_is_that_of_seed_and_step_alone_to_the_bit(
    rows: list[tuple[int, int]], size: int
) -> None:
    rows = [*rows, rows[0]]  # equal rows too
    seeds, steps = [seed for seed, _ in rows], [step for _, step in rows]
    made = sampling.gumbel(sampling.uniforms(seeds, steps, size))
    for (seed, step), found in zip(rows, made, strict=True):
        assert mx.array_equal(found, mx.random.gumbel((size,), key=key(seed, step)))


def test_seeds_and_steps_differ() -> None:
    pairs = [(seed, step) for seed in (0, 1, 2**63, 2**64 - 1) for step in range(5)]
    made = sampling.uniforms([seed for seed, _ in pairs], [step for _, step in pairs], 8)
    assert len(set(map(tuple, float_rows(made)))) == len(pairs)


@pytest.mark.parametrize(
    ("options", "first", "tenth"),
    [
        ({"seed": 0}, [4488, 3439, 714], [4488, 2472, 2163]),
        ({"seed": 2**64 - 1}, [4488, 2754, 2267], [2324, 4537, 2163]),
        ({"seed": 7, "top_k": 40}, [2324, 4549, 4956], [1423, 2457, 3120]),
        ({"seed": 7, "top_p": 0.9}, [2324, 4549, 4956], [2324, 2457, 3120]),
        ({"seed": 3, "min_p": 0.02}, [4488, 2457, 4384], [4488, 1495, 4956]),
        (
            {"seed": 7, "top_p": 0.5, "min_p": 0.05, "top_k": 100, "repeat_penalty": 1.5},
            [2324, 3439, 4956],
            [2324, 2457, 1322],
        ),
    ],
)
def test_a_seed_draws_the_tokens_that_it_always_drew(
    options: dict[str, float], first: list[int], tenth: list[int]
) -> None:
    logits = mx.random.normal((3, 5000), scale=4, key=mx.random.key(1))
    config = GenerateConfig(temperature=1.2, **options)  # type: ignore[arg-type]
    prompts = [[1, 2], [3], ints(mx.argmax(logits[2:], axis=-1))]
    assert ints(sample(logits, prompts, config)) == first
    assert ints(sample(logits, prompts, config, step=9)) == tenth


def test_without_a_seed_requests_and_runs_differ() -> None:
    config = GenerateConfig(temperature=1.0)
    tokens = ints(sample(mx.zeros((50, 1000)), [[0]] * 50, config))
    assert len(set(tokens)) > 30
    assert tokens != ints(sample(mx.zeros((50, 1000)), [[0]] * 50, config))
    fresh = seeded(config)
    assert fresh.seed is not None
    assert seeded(fresh) is fresh
    assert seeded(GenerateConfig(seed=0)).seed == 0
    with pytest.raises(ValueError, match="no seed"):
        RowSampling.of([fresh, config])


def test_a_step_can_be_queued_on_tokens_that_are_not_known_yet() -> None:
    logits = [mx.array([[0.0, 4.0, 3.0, 1.0], [0.0, 4.0, 3.0, 1.0]])] * 4
    rows = RowSampling.of([GenerateConfig(repeat_penalty=4.0, seed=0), GenerateConfig(seed=0)])
    repeats = Repeats.of([[], []], [4.0, 1.0], 4)
    tokens = []
    for step, row in enumerate(logits):
        tokens.append(draw(repeats.penalise(row), rows, [step, step]))
        repeats = repeats.after(tokens[-1])
    # With a penalty of 4: the logit 4 (now worth 1), then 3 (0.75), then 1, at the lowest id.
    assert [ints(pair) for pair in tokens] == [[1, 1], [2, 1], [1, 1], [1, 1]]


def test_the_best_tokens_of_a_batch_take_no_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh one for each row took longer than all the rest on the host."""
    monkeypatch.setattr(sampling, "seeded", None)
    logits = mx.random.normal((6, 50)) + 9
    best = ints(mx.argmax(logits, axis=-1))
    second = ints(mx.argsort(-logits, axis=-1)[:, 1])
    seen = [[token] for token in best]
    assert ints(sample(logits, seen, GenerateConfig())) == best
    assert ints(sample(logits, seen, GenerateConfig(repeat_penalty=1e9))) == second


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000, 262_144])
def test_log_total_is_exact_for_any_vocabulary(size: int) -> None:
    logits = mx.random.normal((3, size), scale=4, key=mx.random.key(size))
    for row, found in zip(float_rows(logits), floats(log_total(logits)), strict=True):
        top = max(row)
        exact = top + math.log(math.fsum(math.exp(value - top) for value in row))
        assert found == pytest.approx(exact, abs=2e-5)


def test_logprobs_are_the_models_own() -> None:
    logits = mx.log(mx.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]))
    found = floats(logprobs(logits, mx.array([3, 3], mx.uint32)))
    assert found == pytest.approx([math.log(0.4), math.log(0.1)], abs=1e-6)


EXTREME: list[dict[str, float]] = [
    {"temperature": 5e-324},
    {"temperature": 1e-45},
    {"temperature": 1e-6},
    {"temperature": 1e300},
    {"temperature": 1.0, "top_p": 5e-324},
    {"temperature": 1.0, "top_p": math.nextafter(1.0, 0.0)},
    {"temperature": 1.0, "min_p": 5e-324},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 2**70},
    {"repeat_penalty": 1e-300},
    {"repeat_penalty": 1e300},
    {"temperature": 1e300, "top_k": 2, "top_p": 0.5, "min_p": 1.0, "repeat_penalty": 1e300},
    {"temperature": 1e-45, "top_k": 2, "top_p": 5e-324, "min_p": 1.0, "repeat_penalty": 1e-300},
    {"temperature": 1.0, "typical_p": 5e-324},
    {"temperature": 1.0, "typical_p": math.nextafter(1.0, 0.0), "top_p": 0.5},
]
BEST_ONLY = [0, 1, 4, 7, 8, 10]  # those of EXTREME that leave the best token alone


def extreme_rows() -> list[GenerateConfig]:
    return [
        GenerateConfig(seed=i, **each)  # type: ignore[arg-type]
        for i, each in enumerate(EXTREME)
    ]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 70, 3000])
@pytest.mark.parametrize("value", [0.0, -math.inf, math.inf, math.nan, 3e38, -3e38, 1e-45])
def test_extreme_values_draw_some_token(
    value: float, size: int, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if narrow:
        monkeypatch.setattr(sampling, "_NARROWEST", 1)
        monkeypatch.setattr(sampling, "_NUCLEUS", 4)
    even = [value] * size
    mixed = [value, *([1.0] * (size - 1))]
    batch: list[Request] = [(row, [0], c, 3) for row in (even, mixed) for c in extreme_rows()]
    assert all(0 <= token < size for token in drawn(batch))


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_a_row_of_bad_logits_leaves_its_neighbours_alone(bad: float) -> None:
    good = [0.0, 1.0, 5.0, 2.0, 4.0, 3.0]
    batch: list[Request] = [(good, [1], config, 0) for config in extreme_rows()]
    spoilt: list[Request] = [([bad] * 6, [1], config, 0) for config in extreme_rows()]
    both = [request for pair in zip(batch, spoilt, strict=True) for request in pair]
    assert drawn(both)[::2] == drawn(batch)


@pytest.mark.usefixtures("short_lists")
@pytest.mark.parametrize("index", BEST_ONLY)
def test_what_leaves_only_the_best_token_draws_it(index: int) -> None:
    row = [0.0, 1.0, 5.0, 2.0, 4.0, 3.0]
    config = extreme_rows()[index]
    assert {drawn([(row, [], config, step)])[0] for step in range(20)} == {2}


def test_a_nucleus_wider_than_the_candidates_is_drawn_from_to_its_end() -> None:
    size, reach = 200_003, 180_003  # of equal tokens, the lowest ids
    config = GenerateConfig(temperature=1.0, top_p=0.9, seed=0)
    tokens = [drawn([([0.0] * size, [], config, step)])[0] for step in range(10)]
    assert reach / 2 < max(tokens) < reach + 5


def test_impossible_tokens_are_never_drawn() -> None:
    row = [-math.inf, 0.0, -math.inf, 0.0]
    for options in ({"top_p": 0.999}, {"top_k": 4}, {"min_p": 0.001}, {"typical_p": 0.999}, {}):
        config = GenerateConfig(temperature=1e30, seed=0, **options)
        tokens = {drawn([(row, [], config, step)])[0] for step in range(40)}
        assert tokens == {1, 3}


def test_half_precision_logits_are_drawn_as_their_float32() -> None:
    count = 200
    logits = mx.random.normal((count, 300), key=mx.random.key(2)).astype(mx.bfloat16)
    config = GenerateConfig(temperature=1.0, top_p=0.3, seed=1)
    rows = RowSampling.of([dataclasses.replace(config, seed=i) for i in range(count)])
    expected = draw(logits.astype(mx.float32), rows, [0] * count)
    assert ints(draw(logits, rows, [0] * count)) == ints(expected)
