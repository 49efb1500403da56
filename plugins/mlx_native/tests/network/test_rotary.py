"""Rope applied by tables, against MLX's own kernel and against the definition."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from core_mlx_native.network.rotary import RotaryEmbedding, View
from core_runtime.checkpoint.rope import Rope

ROPE = Rope(tuple(10.0 ** (k / 4) for k in range(8)))  # head size 16
SHAPE = (3, 2, 5, 16)


def both(positions: int | mx.array) -> tuple[mx.array, mx.array]:
    """By tables, and by the kernel's way."""
    x = mx.random.normal(SHAPE, key=mx.random.key(0))
    tables, kernel = RotaryEmbedding(ROPE), RotaryEmbedding(ROPE)
    tables._has_kernel, kernel._has_kernel = False, True
    return tables.rotate(x, View(positions, {})), kernel.rotate(x, View(positions, {}))


@pytest.mark.parametrize(
    "positions",
    [
        0,
        1000,
        mx.array([4, 0, 77]),
        mx.array([[0, 1, 1, 2, 2], [7, 8, 8, 9, 9], [50, 51, 52, 60, 61]]),
    ],
    ids=["start", "offset", "per row", "per token"],
)
def test_tables_and_kernel_turn_alike(positions: int | mx.array) -> None:
    ours, theirs = both(positions)
    # At position 1,000 the kernel's float32 angles are off by up to 1e-4 themselves.
    assert np.abs(np.array(ours) - np.array(theirs)).max() < 3e-4


def test_the_definition() -> None:
    x = mx.random.normal(SHAPE, key=mx.random.key(1))
    turned = np.array(RotaryEmbedding(ROPE).rotate(x, View(mx.array([3, 10, 0]), {})), np.float64)
    whole = np.array(x, np.float64)
    pairs = whole[..., :8] + 1j * whole[..., 8:]
    position = np.array([3, 10, 0])[:, None, None, None] + np.arange(5)[None, None, :, None]
    expected = pairs * np.exp(1j * position / np.array(ROPE.periods))
    assert np.abs(turned - np.concatenate([expected.real, expected.imag], -1)).max() < 1e-5


def test_the_dtype_is_kept_and_tables_are_made_once() -> None:
    rotary, view = RotaryEmbedding(ROPE), View(3, {})
    rotary._has_kernel = False
    for _ in range(3):
        assert rotary.rotate(mx.ones(SHAPE, mx.bfloat16), view).dtype == mx.bfloat16
    assert len(view._tables) == 1
