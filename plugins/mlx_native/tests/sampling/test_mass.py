"""Filters that sort nothing, as on a GPU, against those that sort the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.options import GenerateConfig, LoadConfig
from core_mlx_native.decode.batch import SamplingRows
from core_mlx_native.loaded import load
from core_mlx_native.network.ops import Ops
from core_mlx_native.sampling import filters
from core_mlx_native.sampling.mass import leading
from core_mlx_native.sampling.sampling import RowSampling, by_work, draw
from core_runtime.request import Request

SEVERAL = 24
KINDS: list[dict[str, Any]] = [
    {"top_p": 0.9},
    {"top_p": 0.999, "temperature": 1.5},
    {"top_p": 0.5, "min_p": 0.01},
    {"top_p": 0.97, "typical_p": 0.8},
    {"typical_p": 0.6},
    {"typical_p": 0.7, "top_k": 40, "top_p": 0.9},
    {},
    {"temperature": 0.0},
]


def random_logits(rows: int, size: int, spread: float, *, half: bool = False) -> mx.array:
    """With ``half``, many are equal, as those that a head computes in bfloat16."""
    made = np.random.default_rng(size).standard_normal((rows, size), np.float32) * spread
    logits = mx.array(made)
    return logits.astype(mx.bfloat16).astype(mx.float32) if half else logits


def tokens(logits: mx.array, by_mass: bool, kinds: list[dict[str, Any]]) -> list[int]:
    configs = [
        GenerateConfig(**{"temperature": 1.0, **kinds[row % len(kinds)]}, seed=row)
        for row in range(len(logits))
    ]
    drawn = draw(logits, RowSampling.of(configs, by_mass), [3] * len(configs))
    return [int(token) for token in np.array(drawn)]


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0, 30.0])
def test_the_same_tokens_are_drawn_seed_for_seed(spread: float, half: bool) -> None:
    logits = random_logits(SEVERAL, 9000, spread, half=half)
    assert tokens(logits, True, KINDS) == tokens(logits, False, KINDS)


def test_a_nucleus_that_is_wider_than_any_list_of_candidates() -> None:
    """At 0.3, 0.9 of the probability takes some 40,000 of 60,000 tokens."""
    logits = random_logits(6, 60_000, 0.3)
    kinds = [{"top_p": 0.9}, {"top_p": 0.99}]
    found = tokens(logits, True, kinds)
    assert found == tokens(logits, False, kinds)
    ranks = (logits > mx.take_along_axis(logits, mx.array(found)[:, None], axis=-1)).sum(axis=-1)
    assert max(np.array(ranks)) > 2048


def test_a_row_draws_what_it_draws_alone() -> None:
    logits = random_logits(SEVERAL, 5000, 1.0)
    together = tokens(logits, True, [{"top_p": 0.9}])
    configs = [GenerateConfig(temperature=1.0, top_p=0.9, seed=row) for row in range(SEVERAL)]
    alone = [
        int(np.array(draw(logits[row : row + 1], RowSampling.of([config], True), [3]))[0])
        for row, config in enumerate(configs)
    ]
    assert together == alone


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    st.lists(st.integers(0, 8), min_size=40, max_size=40),
    st.integers(1, 70),
)
def test_what_leads_is_what_the_definition_says(
    keys: list[int], weights: list[int], limit: int
) -> None:
    """Probabilities are eighths here, so that every sum is exact: those of equal keys, too."""
    weighed = weights[: len(keys)]
    found = leading(
        mx.array([keys], mx.float32) / 3,
        mx.array([weighed], mx.float32) / 64,
        mx.array([[limit / 64]]),
    )
    order = sorted(range(len(keys)), key=lambda token: (keys[token], token))
    wanted, before = [False] * len(keys), 0
    for token in order:
        wanted[token] = before < limit
        before += weighed[token]
    if before <= 128:  # a distribution has 64 of them
        assert np.array(found)[0].tolist() == wanted


def test_a_limit_that_is_off_drops_nothing_and_a_tiny_one_keeps_the_first() -> None:
    keys = mx.array([[0.0, -0.0, 2.0, -1.0]] * 2)
    probabilities = mx.array([[0.25] * 4] * 2)
    found = leading(keys, probabilities, mx.array([[float("inf")], [1e-30]]))
    assert np.array(found).tolist() == [[True] * 4, [False, False, False, True]]


def test_zeros_of_both_signs_are_equal() -> None:
    keys = mx.array([[0.0, -0.0, 0.0, -0.0]])
    found = leading(keys, mx.array([[0.25] * 4]), mx.array([[0.5]]))
    assert np.array(found).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_logits_draw_some_token_and_leave_neighbours_alone(bad: float) -> None:
    good = random_logits(1, 3000, 1.0)
    logits = mx.concatenate([good, mx.full((1, 3000), bad)])
    found = tokens(logits, True, [{"top_p": 0.9}])
    assert found[0] == tokens(good, True, [{"top_p": 0.9}])[0]
    assert 0 <= found[1] < 3000


def test_no_step_on_a_gpu_sorts_the_vocabulary(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sorted_sizes: list[int] = []

    def noted(name: str) -> None:
        real = getattr(mx, name)

        def sort(array: mx.array, *rest: Any, **options: Any) -> mx.array:
            sorted_sizes.append(array.shape[-1])
            return real(array, *rest, **options)  # type: ignore[no-any-return]

        monkeypatch.setattr(mx, name, sort)

    for name in ("sort", "argsort", "partition", "argpartition"):
        noted(name)

    for on_gpu in (True, False):
        sorted_sizes.clear()
        model = load_once(checkpoint, on_gpu)
        request = Request(
            model, [3], GenerateConfig(temperature=1.0, top_p=0.9, seed=1), lambda _: None
        )
        rows = SamplingRows.of([request], 20_000, model.decoder.ops.samples_by_mass)
        both = rows.joined(rows).take([0, 1])
        mx.eval(both.draw(random_logits(2, 20_000, 1.0), mx.zeros(2, mx.bool_)).tokens)
        assert bool(sorted_sizes) != on_gpu
    assert Ops.samples_by_mass
    assert not by_work([GenerateConfig(temperature=1.0, seed=0)])[0].by_mass


def load_once(checkpoint: Callable[..., Path], on_gpu: bool) -> Any:
    return load(checkpoint(name=f"on_gpu_{on_gpu}"), LoadConfig(), on_gpu)


def test_typical_tokens_are_those_of_the_sort() -> None:
    limits = by_work([GenerateConfig(temperature=1.0, typical_p=0.9, seed=0)])[0].limits
    logits = random_logits(3, 40_000, 1.0)
    found, wanted = (np.array(filters.typical(logits, limits, by)) for by in (True, False))
    apart = (np.isinf(found) != np.isinf(wanted)).sum(axis=-1)
    assert apart.max() <= 1, "a sum of float32 may round the border to the next token"
