"""The columns of a batch's buffers that a pass writes and sees; no arrays except masks.

`kv_cache` describes the buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.network.masks import additive


@dataclass(slots=True)
class Columns:
    """The columns of all layers with one ``window`` (0 = all positions); host numbers only.

    The running pass sees ``[start, end)`` of a buffer of ``capacity`` columns. ``anchored``: a view
    without a mask has to begin at column 0 (`Ops.reads_whole_buffers`). ``spare`` columns beyond
    the window are never dropped.
    """

    window: int
    chunk: int
    anchored: bool = False
    start: int = 0
    end: int = 0
    capacity: int = 0
    spare: int = 0

    def needed(self, length: int) -> int:
        """Return how many of ``length`` columns later tokens may see, spare ones included."""
        return min(length, self.window - 1 + self.spare) if self.window else length

    def roomy(self, needed: int, size: int = 1) -> int:
        """Return the capacity of a new buffer for ``needed`` columns and at least ``size`` more."""
        least = needed + size
        capacity = -(-least // self.chunk) * self.chunk
        if self.window and capacity >= self.window:  # it no longer grows: it moves once per chunk
            return max(self.window + self.chunk, least)
        return capacity

    def write(self, size: int, longest: int) -> None:
        """Reserve ``size`` more columns; the longest row then has ``longest`` tokens.

        Columns that are padding or outside the window in every row are excluded from view.
        """
        self.end += size
        seen = max(min(longest, self.end), size)  # even a pass of only padding sees itself
        if self.window:
            seen = min(seen, self.window + size - 1)
        self.start = self.end - seen

    def astray(self, lengths: Sequence[int], size: int) -> bool:
        """Return True if the next pass over ``size`` columns has an unmasked view off column 0.

        ``lengths`` count its columns too. A window moves at each step; a mask then costs less than
        a new buffer layout.
        """
        unmasked = size == 1 and not self.window and min(lengths) == max(lengths)
        return self.anchored and unmasked and self.end + size > max(lengths)

    def mask(self, lengths: Sequence[int], size: int, dtype: mx.Dtype) -> mx.array | None:
        """Return the additive mask [B, 1, T, S] of a pass over the last ``size`` columns.

        ``lengths`` count these columns too. None if nothing is hidden.
        """
        shown = self.end - self.start
        astray = self.anchored and self.start > 0
        if size == 1 and min(lengths) >= shown and not astray:
            return None
        return additive(step_allowed(mx.array(list(lengths)), size, shown, self.window), dtype)


def step_allowed(lengths: mx.array, size: int, shown: int, window: int = 0) -> mx.array:
    """Return which of ``shown`` columns the last ``size`` ones see: bool [B, 1, T, S].

    The last ``lengths[b]`` columns of row b are tokens (more than ``shown`` means all). With
    ``window``, key j is visible to query i iff also ``i - j < window``.
    """
    key = mx.arange(shown)[None, :]  # [1, S]
    query = mx.arange(shown - size, shown)[:, None]  # [T, 1]
    allowed = key <= query
    if window:
        allowed = allowed & (query - key < window)

    allowed = allowed & (key >= shown - lengths[:, None, None, None])
    return allowed | (key == query)  # padding sees itself: softmax over nothing is NaN
