"""Attention masks, additive: 0 where a query may look at a key, -inf where not.

The defining mask of classification (every faster way must reproduce it)::

    mask[b, 0, i, j] = 0 if j <= i and j < length[b] else -inf
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

NEVER = float("-inf")


def additive(allowed: mx.array, dtype: mx.Dtype) -> mx.array:
    """Turn a bool mask into one of the same shape that is added to the scores."""
    return mx.where(allowed, mx.array(0.0, dtype), mx.array(NEVER, dtype))


def prefill_allowed(lengths: mx.array, size: int, window: int = 0) -> mx.array:
    """Visibility mask of right-padded prompts that run alone: bool [B, 1, size, size].

    ``lengths`` [B] counts real tokens, at least 1 each, so that no row is empty. With ``window``,
    key j is visible to query i iff also ``i - j < window``.
    """
    query = mx.arange(size)[:, None]  # [T, 1]
    key = mx.arange(size)[None, :]  # [1, T]
    allowed = key <= query
    if window:
        allowed = allowed & (query - key < window)
        # A padded query far behind its prompt would see nothing, and softmax would give NaN.
        allowed = allowed | ((key == 0) & (query >= lengths[:, None, None, None]))
    return allowed & (key < lengths[:, None, None, None])  # [B, 1, T, T]


def seen_from(positions: mx.array, size: int, window: int = 0) -> mx.array:
    """Visibility mask of tokens at ``positions`` [1 or B, T]: bool [1 or B, 1, T, size].

    Padding on the right needs no mask of its own: it stands behind every real token.
    """
    query = positions[:, None, :, None]  # [1 or B, 1, T, 1]
    key = mx.arange(size)  # [size]
    allowed = key <= query
    return allowed & (query - key < window) if window else allowed


def tree_allowed(
    prompt_size: int, anchors: mx.array, prefixes: Sequence[tuple[int, ...]], window: int = 0
) -> mx.array:
    """Visibility mask of label prefixes behind cached prompts: bool [B, 1, N, size + N].

    Node n stands for the last token of ``prefixes[n]``; it sees the first ``anchors[b]`` tokens
    of its prompt, its ancestors, and itself.
    """
    depth = mx.array([len(prefix) for prefix in prefixes])  # [N], 1 for a child of the root

    # The prompt's tokens, up to where the labels begin.
    key = mx.arange(prompt_size)[None, :]  # [1, size]
    position = anchors[:, None, None, None] + depth[:, None] - 1  # [B, 1, N, 1]
    prompt = mx.broadcast_to(
        key < anchors[:, None, None, None], (len(anchors), 1, len(prefixes), prompt_size)
    )

    # The nodes themselves: each sees those whose path begins its own.
    nodes = mx.array([[n[: len(m)] == m for m in prefixes] for n in prefixes])  # [N, N]

    if window:
        prompt = prompt & (position - key < window)
        nodes = nodes & (depth[:, None] - depth[None, :] < window)

    nodes = mx.broadcast_to(nodes, (len(anchors), 1, *nodes.shape))
    return mx.concatenate([prompt, nodes], axis=-1)
