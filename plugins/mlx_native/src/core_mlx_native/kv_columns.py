"""Where the tokens of a batch stand in a buffer of columns, and which of them a token sees.

All rows end in the same column: row b's tokens are the columns ``[end - length[b], end)``, and
what stands left of them is padding. A decode step then writes one column, the same for all rows.

Shapes: B rows, T tokens of a pass, S columns that it looks at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.masks import additive

CHUNK = 256  # columns by which buffers grow, as in mlx-lm


@dataclass(slots=True)
class Columns:
    """The columns of all layers with one ``window`` (0 = all positions); host numbers only.

    The running pass looks at ``[start, end)`` of a buffer of ``capacity`` columns.
    """

    window: int
    chunk: int
    start: int = 0
    end: int = 0
    capacity: int = 0

    def needed(self, length: int) -> int:
        """How many columns of a row with ``length`` tokens a later token can still see."""
        return min(length, self.window - 1) if self.window else length

    def roomy(self, needed: int, size: int = 1) -> int:
        """The capacity of a new buffer for ``needed`` columns and at least ``size`` more."""
        least = needed + size
        capacity = -(-least // self.chunk) * self.chunk
        if self.window and capacity >= self.window:  # it grows no more: a chunk between moves
            return max(self.window + self.chunk, least)
        return capacity

    def write(self, size: int, longest: int) -> None:
        """Take ``size`` more columns, after which the longest row has ``longest`` tokens.

        Columns that are padding or out of the window in every row are left out of sight.
        """
        self.end += size
        seen = max(min(longest, self.end), size)  # even a pass of padding sees itself
        if self.window:
            seen = min(seen, self.window + size - 1)
        self.start = self.end - seen

    def mask(self, lengths: Sequence[int], size: int, dtype: mx.Dtype) -> mx.array | None:
        """The additive mask [B, 1, T, S] of a pass over the last ``size`` columns.

        ``lengths`` count these columns too. None when nothing is hidden.
        """
        shown = self.end - self.start
        if size == 1 and min(lengths) >= shown:
            return None
        return additive(step_allowed(mx.array(list(lengths)), size, shown, self.window), dtype)


def step_allowed(lengths: mx.array, size: int, shown: int, window: int = 0) -> mx.array:
    """Who sees whom when the last ``size`` of ``shown`` columns run: bool [B, 1, T, S].

    The last ``lengths[b]`` columns of row b are tokens (more than ``shown`` means all). With
    ``window``, key j is visible to query i iff also ``i - j < window``.
    """
    key = mx.arange(shown)[None, :]  # [1, S]
    query = mx.arange(shown - size, shown)[:, None]  # [T, 1]
    allowed = key <= query
    if window:
        allowed = allowed & (query - key < window)
    allowed = allowed & (key >= shown - lengths[:, None, None, None])
    return allowed | (key == query)  # padding sees itself: softmax over nothing would give NaN
