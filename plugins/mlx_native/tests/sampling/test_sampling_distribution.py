"""Sampled frequencies against the exact distribution, by chi-square with fixed seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from core.options import GenerateConfig
from core_mlx_native.sampling import sampling
from core_mlx_native.sampling.filters import Repeats
from core_mlx_native.sampling.sampling import RowSampling, draw

Floats = npt.NDArray[np.float64]

SEEDS, STEPS = 50, 500  # 25,000 draws
LOGITS = [1.0, -0.5, 2.5, 0.25, 1.75, -2.0, 2.0, 0.75, -1.0, 1.5, 0.0, -3.0]
PROMPT = [2, 6, 6, 8]
UNLIKELY = 4.75  # standard deviations: one run in a million, were the seeds not fixed

CASES: list[dict[str, float]] = [
    {},
    {"temperature": 0.75},
    {"temperature": 2.0},
    {"top_k": 3},
    {"top_k": 5, "temperature": 0.6},
    {"top_p": 0.3},
    {"top_p": 0.6},
    {"top_p": 0.95},
    {"top_p": 0.6, "temperature": 2.0},
    {"min_p": 0.1},
    {"min_p": 0.4, "temperature": 2.0},
    {"typical_p": 0.4},
    {"typical_p": 0.9, "temperature": 2.0},
    {"typical_p": 0.8, "top_p": 0.8, "top_k": 6},
    {"repeat_penalty": 1.8},
    {"repeat_penalty": 0.6, "temperature": 2.0},
    {"top_p": 0.9, "min_p": 0.15},
    {"top_p": 0.8, "top_k": 6},
    {"top_p": 0.95, "min_p": 0.05, "top_k": 5, "temperature": 1.5, "repeat_penalty": 1.3},
]


def named(case: dict[str, float]) -> str:
    return ",".join(f"{name}={value}" for name, value in case.items()) or "plain"


def exact(options: dict[str, float], logits: Sequence[float] = LOGITS) -> Floats:
    """The distribution by the definitions, in the documented order."""
    values = np.array(logits)
    penalty = options.get("repeat_penalty", 1.0)
    for token in set(PROMPT):
        values[token] *= 1 / penalty if values[token] > 0 else penalty
    values = np.where(typical(softmax(values), options.get("typical_p", 1.0)), values, -np.inf)
    kept = nucleus(softmax(values), options.get("top_p", 1.0))
    best = softmax(values).max()
    kept &= softmax(values) >= options.get("min_p", 0.0) * best
    rest = np.where(kept, values, -np.inf)
    kept &= rest >= np.sort(rest)[-int(options.get("top_k", len(values)))]
    return softmax(np.where(kept, values, -np.inf) / options.get("temperature", 1.0))


def softmax(values: Floats) -> Floats:
    weights = np.exp(values - values.max())
    return np.asarray(weights / weights.sum())


def typical(probabilities: Floats, typical_p: float) -> npt.NDArray[np.bool_]:
    surprisals = -np.log(probabilities)
    order = np.argsort(np.abs(surprisals - (probabilities * surprisals).sum()))
    kept = np.zeros(len(probabilities), np.bool_)
    for token in order:
        if typical_p < 1.0 and probabilities[kept].sum() > typical_p:
            break
        kept[token] = True
    return kept


def nucleus(probabilities: Floats, top_p: float) -> npt.NDArray[np.bool_]:
    kept = np.zeros(len(probabilities), np.bool_)
    for token in np.argsort(-probabilities):
        if probabilities[kept].sum() >= top_p:
            break
        kept[token] = True
    return kept


def counts(options: dict[str, float], neighbour: GenerateConfig | None = None) -> Floats:
    """How often each token is drawn by many seeds at many steps."""
    config = GenerateConfig(**{"temperature": 1.0, **options})  # type: ignore[arg-type]
    configs = [dataclasses.replace(config, seed=seed) for seed in range(SEEDS)] * STEPS
    steps = [step for step in range(STEPS) for _ in range(SEEDS)]
    if neighbour is not None:
        configs, steps = [*configs, neighbour], [*steps, 0]
    repeats = Repeats.of(
        [PROMPT] * len(configs), [each.repeat_penalty for each in configs], len(LOGITS)
    )
    logits = repeats.penalise(mx.broadcast_to(mx.array(LOGITS), (len(configs), len(LOGITS))))
    tokens = np.array(draw(logits, RowSampling.of(configs), steps))[: SEEDS * STEPS]
    return np.bincount(tokens, minlength=len(LOGITS)).astype(np.float64)


def fits(found: Floats, expected: Floats) -> bool:
    """Pearson's chi-square; its tail by the cube root of Wilson and Hilferty (PNAS 17, 1931)."""
    if found[expected == 0].any():
        return False
    wanted = expected[expected > 0] * found.sum()
    assert wanted.min() > 5  # else chi-square does not hold
    freedom = len(wanted) - 1
    if freedom == 0:
        return True
    chi = ((found[expected > 0] - wanted) ** 2 / wanted).sum()
    spread = 2 / (9 * freedom)
    return bool((np.cbrt(chi / freedom) - (1 - spread)) / np.sqrt(spread) < UNLIKELY)


@pytest.mark.parametrize("narrow", [False, True], ids=["all in order", "candidates first"])
@pytest.mark.parametrize("options", CASES, ids=named)
def test_frequencies_follow_the_distribution(
    options: dict[str, float], narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if narrow:
        monkeypatch.setattr(sampling, "_NARROWEST", 1)
        monkeypatch.setattr(sampling, "_NUCLEUS", 4)
    assert fits(counts(options), exact(options))


def test_frequencies_follow_the_distribution_beside_a_row_with_every_option() -> None:
    busy = GenerateConfig(
        temperature=9.0, top_k=2, top_p=0.1, min_p=0.9, repeat_penalty=7.0, seed=0
    )
    assert fits(counts({}, busy), exact({}))


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({}, {"temperature": 1.1}),
        ({"top_k": 3}, {"top_k": 4}),
        ({"top_p": 0.6}, {"top_p": 0.7}),
        ({"top_p": 0.6, "temperature": 2.0}, {"top_p": 0.6, "temperature": 1.6}),
        ({"min_p": 0.1}, {"min_p": 0.2}),
        ({"typical_p": 0.4}, {"typical_p": 0.5}),
        ({"typical_p": 0.9, "temperature": 2.0}, {"temperature": 2.0}),
        ({"repeat_penalty": 1.8}, {"repeat_penalty": 1.5}),
    ],
    ids=named,
)
def test_the_chi_square_tells_a_distribution_from_one_that_is_near(
    options: dict[str, float], other: dict[str, float]
) -> None:
    assert not fits(counts(options), exact(other))


def test_draws_of_one_seed_at_following_steps_are_independent() -> None:
    """Pairs of neighbouring draws, over 16 cells, against the product of two fair draws."""
    count = 25_000
    rows = RowSampling.of([GenerateConfig(temperature=1.0, seed=11)] * count)
    tokens = np.array(draw(mx.zeros((count, 4)), rows, range(count))).astype(np.int64)
    pairs = np.bincount(tokens[:-1] * 4 + tokens[1:], minlength=16).astype(np.float64)
    assert fits(pairs, np.full(16, 1 / 16))
