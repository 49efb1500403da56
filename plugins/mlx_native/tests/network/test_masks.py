"""The masks themselves, with every entry written out."""

from __future__ import annotations

import mlx.core as mx

from core_mlx_native.network.masks import additive, prefill_allowed, tree_allowed


def test_the_defining_mask_of_a_ragged_batch() -> None:
    mask = prefill_allowed(mx.array([3, 1]), 3)
    assert mask.shape == (2, 1, 3, 3)
    assert mask[0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert mask[1, 0].tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_it_is_zero_where_allowed_and_minus_infinity_elsewhere() -> None:
    lengths = [4, 2, 1]
    mask = additive(prefill_allowed(mx.array(lengths), 4), mx.float32)
    assert mask.shape == (3, 1, 4, 4)
    assert mask.dtype == mx.float32
    for b, length in enumerate(lengths):
        for i in range(4):
            for j in range(4):
                wanted = 0.0 if j <= i and j < length else float("-inf")
                assert mask[b, 0, i, j].item() == wanted


def test_a_window_hides_keys_that_are_too_far_back() -> None:
    mask = prefill_allowed(mx.array([5]), 5, window=2)
    assert mask[0, 0].tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_no_row_is_empty_even_far_behind_a_short_prompt() -> None:
    mask = prefill_allowed(mx.array([1, 6]), 6, window=2)
    assert mask.any(axis=-1).all().item()


def test_label_nodes_see_their_prompt_and_their_ancestors_only() -> None:
    lines = mx.array([[[0, -1], [1, 0], [2, -1]]])  # a child of the root, its own, and another
    mask = tree_allowed(3, mx.array([3, 2]), lines, 3)
    assert mask.shape == (2, 1, 3, 6)
    assert mask[0, 0].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 1]]
    assert mask[1, 0].tolist() == [[1, 1, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 1]]


def test_label_nodes_keep_the_window_across_the_border() -> None:
    lines = mx.array([[[0, -1, -1], [1, 0, -1], [2, 1, 0]]])
    mask = tree_allowed(3, mx.array([3]), lines, 3, window=2)
    assert mask[0, 0].tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]


def test_rows_have_nodes_of_their_own_after_those_that_ran_before() -> None:
    """Column 0 ran before; the first row continues it, the second one does not."""
    lines = mx.array([[[1, 0], [2, -1]], [[1, -1], [-1, -1]]])
    mask = tree_allowed(2, mx.array([2, 1]), lines, 3)
    assert mask[0, 0].tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]
    assert mask[1, 0].tolist() == [[1, 0, 0, 1, 0], [1, 0, 0, 0, 0]]
