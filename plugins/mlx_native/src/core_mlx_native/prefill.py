"""Running whole prompts at once: one padded, masked forward pass, and no cache object.

Shapes: B rows, T tokens of the longest row, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core_mlx_native.attention import KeysValues
from core_mlx_native.decoder import Decoder
from core_mlx_native.masks import additive, prefill_allowed
from core_mlx_native.rotation import View


@dataclass(frozen=True, slots=True)
class Prefill:
    """What one pass over a ragged batch left behind. Right-padded; padding holds no meaning.

    ``hidden`` [B, T, H] is behind the last layer, of the tokens from ``start`` on, or of each
    row's ``positions`` only; ``cache`` holds each layer's keys and values, [B, kv heads, size,
    head size].
    """

    size: int
    hidden: mx.array
    cache: list[KeysValues]
    start: int = 0
    positions: tuple[tuple[int, ...], ...] | None = None

    def hidden_at(self, positions: Sequence[int]) -> mx.array:
        """The hidden state of one position per row: [B, H]."""
        index = mx.array(self._columns(positions))[:, None, None]  # [B, 1, 1]
        return mx.take_along_axis(self.hidden, index, axis=1)[:, 0]

    def select(self, rows: Sequence[int]) -> Prefill:
        """Some of the rows, in ascending order; all of them cost nothing."""
        if len(rows) == len(self.hidden):
            return self
        index = mx.array(list(rows))
        cache = [(keys[index], values[index]) for keys, values in self.cache]
        kept = self.positions and tuple(self.positions[row] for row in rows)
        return Prefill(self.size, self.hidden[index], cache, self.start, kept)

    def _columns(self, positions: Sequence[int]) -> list[int]:
        if self.positions is None:
            return [position - self.start for position in positions]
        return [row.index(at) for row, at in zip(self.positions, positions, strict=True)]


@dataclass(frozen=True, slots=True)
class Behind:
    """Tokens that run once behind prefilled prompts, and are not kept (an `attention.Past`).

    What stands before is one row for each, or one row for all.
    """

    keys: mx.array
    values: mx.array

    def update(self, keys: mx.array, values: mx.array) -> KeysValues:
        """The prompt's and the new ones, side by side."""
        return _behind(self.keys, keys), _behind(self.values, values)


def _behind(past: mx.array, new: mx.array) -> mx.array:
    rows = mx.broadcast_to(past, (len(new), *past.shape[1:]))
    return mx.concatenate([rows, new], axis=2)  # [B, kv heads, S + T, D]


def prefill(decoder: Decoder, prompts: Sequence[Sequence[int]]) -> Prefill:
    """Run token-id prompts, each at least one token long, in one forward pass."""
    size = max(map(len, prompts))
    padded = mx.array([[*prompt, *[0] * (size - len(prompt))] for prompt in prompts])  # [B, T]
    lengths = mx.array([len(prompt) for prompt in prompts])  # [B]
    masks: dict[int, mx.array | None] = {
        window: additive(prefill_allowed(lengths, size, window), decoder.dtype)
        for window in windows(decoder)
    }
    hidden, cache = decoder(padded, View(0, masks))
    return Prefill(size, hidden, cache)


def last_logits(decoder: Decoder, prompts: Sequence[Sequence[int]]) -> mx.array:
    """Next-token logits at each prompt's last real token: float32 [B, vocabulary]."""
    ends = [len(prompt) - 1 for prompt in prompts]
    return decoder.logits(prefill(decoder, prompts).hidden_at(ends))


def windows(decoder: Decoder) -> set[int]:
    """The window sizes that occur among the layers; 0 is full attention."""
    return {kind.window for kind in decoder.config.layers}
