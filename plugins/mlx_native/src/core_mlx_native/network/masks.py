"""Attention masks, additive: 0 where a query may see a key, else -inf.

The defining mask of classification (every faster path must reproduce it)::

    mask[b, 0, i, j] = 0 if j <= i and j < length[b] else -inf
"""

from __future__ import annotations

import mlx.core as mx

NEVER = float("-inf")


def additive(allowed: mx.array, dtype: mx.Dtype) -> mx.array:
    """Return the additive form of a bool mask, in the same shape."""
    return mx.where(allowed, mx.array(0.0, dtype), mx.array(NEVER, dtype))


def prefill_allowed(lengths: mx.array, size: int, window: int = 0) -> mx.array:
    """Return the visibility mask of right-padded prompts without a past: bool [B, 1, size, size].

    ``lengths`` [B] counts real tokens, at least 1 each, so that no row is empty. With ``window``,
    key j is visible to query i iff also ``i - j < window``.
    """
    query = mx.arange(size)[:, None]  # [T, 1]
    key = mx.arange(size)[None, :]  # [1, T]
    allowed = key <= query
    if window:
        allowed = allowed & (query - key < window)
        # A padded query far after its prompt would see nothing, and softmax would give NaN.
        allowed = allowed | ((key == 0) & (query >= lengths[:, None, None, None]))
    return allowed & (key < lengths[:, None, None, None])  # [B, 1, T, T]


def seen_from(positions: mx.array, size: int, window: int = 0) -> mx.array:
    """Return the visibility mask of tokens at ``positions`` [1 or B, T]: bool [1 or B, 1, T, size].

    Padding on the right needs no separate mask: it comes after every real token.
    """
    query = positions[:, None, :, None]  # [1 or B, 1, T, 1]
    key = mx.arange(size)  # [size]
    allowed = key <= query
    return allowed & (query - key < window) if window else allowed


def tree_allowed(
    prompt_size: int, anchors: mx.array, lines: mx.array, columns: int, window: int = 0
) -> mx.array:
    """Return the mask of trie nodes after cached prompts: bool [B, 1, N, prompt_size + columns].

    A node sees the first ``anchors[b]`` tokens of its prompt, and of the ``columns`` after the
    prompt those in its line: ``lines`` [1 or B, N, A] contains its own column, its parent's, and so
    on up to the root's child, padded with -1.
    """
    rows, nodes = len(anchors), lines.shape[1]
    depth = (lines >= 0).sum(axis=-1)[:, None, :, None]  # [1 or B, 1, N, 1], 1 for the root's child

    # The prompt's tokens, up to where the labels begin.
    key = mx.arange(prompt_size)  # [size]
    begin = anchors[:, None, None, None]  # [B, 1, 1, 1]
    prompt = mx.broadcast_to(key < begin, (rows, 1, nodes, prompt_size))
    if window:
        prompt = prompt & (begin + depth - 1 - key < window)
        lines = lines[:, :, :window]

    # The nodes: [1 or B, 1, N, columns].
    seen = (lines[:, None, :, :, None] == mx.arange(columns)).any(axis=-2)
    return mx.concatenate([prompt, mx.broadcast_to(seen, (rows, 1, nodes, columns))], axis=-1)
