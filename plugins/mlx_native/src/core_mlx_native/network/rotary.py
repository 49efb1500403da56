"""Rotary position embedding, applied to queries and keys.

Shapes: B rows, T tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import mlx.core as mx

from core_mlx_native.network.values import Mask
from core_runtime.checkpoint.rope import Rope


@dataclass(frozen=True, slots=True)
class View:
    """The token positions and attention masks of one forward pass.

    ``positions``: the position of the first token, one number or one per row [B], or one per token
    [B, T] if tokens are not consecutive. ``masks`` maps a layer's window to its additive mask,
    broadcastable to [B, heads, T, S + T]; "causal" hides later tokens, None hides nothing.
    """

    positions: int | mx.array
    masks: Mapping[int, Mask]
    _tables: dict[RotaryEmbedding, Tables] = field(default_factory=dict, init=False, repr=False)

    def tables(self, rotary: RotaryEmbedding, size: int) -> Tables:
        """Return the angles of this pass, computed once for all layers with the same RoPE."""
        if rotary not in self._tables:
            self._tables[rotary] = rotary.tables(self.token_positions(size))
        return self._tables[rotary]

    def token_positions(self, size: int) -> mx.array:
        """Return the position of each of ``size`` tokens: [1 or B, T]."""
        if isinstance(self.positions, int):
            return mx.arange(self.positions, self.positions + size)[None]
        if self.positions.ndim == 2:
            return self.positions
        return self.positions[:, None] + mx.arange(size)


@dataclass(frozen=True, slots=True)
class Ends:
    """The tokens of a pass whose hidden states are read: ``columns`` [B, R], seen as ``view``."""

    columns: mx.array
    view: View

    def of(self, x: mx.array) -> mx.array:
        """Return the read columns of [B, T, H]: [B, R, H]."""
        return mx.take_along_axis(x, self.columns[:, :, None], axis=1)


Tables = tuple[mx.array, mx.array]  # cosine and signed sine, each [1 or B, 1, T, D]


class RotaryEmbedding:
    """One RoPE, shared by its layers; without a kernel they share its angles too."""

    def __init__(self, rope: Rope, has_kernel: bool = False) -> None:
        self.periods = mx.array(rope.periods)  # [D / 2]
        self._has_kernel = has_kernel

    def rotate(self, x: mx.array, view: View) -> mx.array:
        """Rotate [B, heads, T, D] by the angles of the tokens' positions."""
        if not self._has_kernel:
            return _rotate_by(x, view.tables(self, x.shape[2]))
        positions = view.positions
        if isinstance(positions, mx.array) and positions.ndim == 2:
            return self._rotate_each(x, positions)
        return self._fused(x, positions)

    def tables(self, positions: mx.array) -> Tables:
        """Return the cosines and signed sines of tokens at positions [1 or B, T]."""
        angles = positions[:, None, :, None] / self.periods  # [1 or B, 1, T, D / 2]
        cosine, sine = mx.cos(angles), mx.sin(angles)
        return mx.concatenate([cosine, cosine], -1), mx.concatenate([-sine, sine], -1)

    def _rotate_each(self, x: mx.array, positions: mx.array) -> mx.array:
        batch, heads, length, dim = x.shape
        alone = x.transpose(0, 2, 1, 3).reshape(batch * length, heads, 1, dim)
        turned = self._fused(alone, positions.reshape(-1))  # [B * T, heads, 1, D]
        return turned.reshape(batch, length, heads, dim).transpose(0, 2, 1, 3)

    def _fused(self, x: mx.array, offset: int | mx.array) -> mx.array:
        return mx.fast.rope(
            x,
            x.shape[-1],
            traditional=False,
            base=None,
            scale=1.0,
            offset=offset,
            freqs=self.periods,
        )


def _rotate_by(x: mx.array, tables: Tables) -> mx.array:
    """Rotate the halves a and b of D: ``(a cos - b sin, b cos + a sin)``."""
    cosine, sine = tables
    turned = x * cosine + mx.roll(x, x.shape[-1] // 2, -1) * sine
    return turned.astype(x.dtype)
