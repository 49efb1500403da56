"""Paged attention: windows, long contexts, head sizes, and positions beyond bfloat16's integers."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.openvino.tests.dense import DenseDecoder
from plugins.openvino.tests.passes import (
    assert_equal_rows,
    chunked_logits,
    distance,
    last_logits,
    session_of,
)
from runtime.tests.tiny import Checkpoint

LONG = 2500
# The largest distance to float32's logits, whose standard deviation is 0.6; measured: 0.02, 0.08.
BOUNDS = {"bfloat16": 0.05, "int8": 0.2}


def _prompt(length: int, seed: int = 1) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(2, 90, length).tolist()
    return ids


@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 100])
def test_a_token_sees_exactly_its_window(checkpoint: Checkpoint, window: int) -> None:
    """Two layers see ``2 * (window - 1)`` tokens back: a change further back changes nothing.

    Windows are shorter and longer than a block of the cache, prompts longer than both.
    """
    directory = checkpoint("mistral", sliding_window=window, max_position_embeddings=512)
    prompt, seen = _prompt(300), 2 * (window - 1)
    outside, inside = list(prompt), list(prompt)
    outside[-2 - seen] = inside[-1 - seen] = 1
    with session_of(directory) as session:
        wanted, same, other = last_logits(session, [prompt, outside, inside])
        chunks = [
            chunked_logits(session, prompts, size)[-1]
            for size in (1, 90)
            for prompts in (prompt, outside)
        ]
    assert np.array_equal(wanted, same)
    assert distance(wanted, other) > 1e-9
    for rows in chunks:
        assert_equal_rows(rows, wanted)


def test_a_scale_that_float32_rounds_to_zero_is_not_the_default(checkpoint: Checkpoint) -> None:
    """Paged attention takes zero for ``1 / sqrt(head size)``."""
    rows = []
    for scalar in (1e60, 1e300):  # either makes all scores equal
        with session_of(checkpoint("gemma3", str(scalar), query_pre_attn_scalar=scalar)) as session:
            rows.append(last_logits(session, [_prompt(40)])[0])
    assert_equal_rows(rows[0], rows[1])


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_rounding_does_not_grow_with_positions(checkpoint: Checkpoint, family: str) -> None:
    """Beyond position 256 bfloat16 holds no odd integers: angles computed in it would be wrong."""
    directory = checkpoint(
        family, max_position_embeddings=4096, hidden_size=64, intermediate_size=96
    )
    prompts = [_prompt(length) for length in (5, 255, 300, LONG)]
    with session_of(directory) as session:
        exact = last_logits(session, prompts)
        assert_equal_rows(chunked_logits(session, prompts[-1], 700)[-1], exact[-1])
    for dtype, bound in BOUNDS.items():
        with session_of(directory, dtype) as session:
            rounded = last_logits(session, prompts) - exact
            stepped = chunked_logits(session, prompts[-1], 64)[-1] - exact[-1]
        errors = np.abs([*rounded, stepped]).max(axis=1) / exact.std()
        assert errors.max() < bound, f"{dtype}: {errors}"


@pytest.mark.parametrize("size", [2, 6, 8, 12, 20, 40, 72, 80, 100, 112, 160, 256])
def test_head_sizes(checkpoint: Checkpoint, size: int) -> None:
    directory = checkpoint("qwen3", head_dim=size)
    decoder, prompts = DenseDecoder(directory), [_prompt(5), _prompt(64)]
    with session_of(directory) as session:
        logits = last_logits(session, prompts)
        steps = chunked_logits(session, prompts[1], 1)
    assert_equal_rows(logits, np.stack([decoder.last_logits(prompt) for prompt in prompts]))
    assert_equal_rows(steps[-1], logits[1])
