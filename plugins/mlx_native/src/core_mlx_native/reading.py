"""Running prompts of which only a few positions are read: the fast way of `prefill`.

The defining mask (`masks`) is kept in a cheaper form: padding stands on the right, behind every
real token, so that seeing nothing later is enough.

Shapes: B rows, T tokens of the longest row behind the prefix, R positions that are read, H hidden
size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from core.serving.batching import rounded_up
from core_mlx_native.attention import KeysValues
from core_mlx_native.decoder import Between, Decoder, nothing
from core_mlx_native.fast import FastPaths
from core_mlx_native.host import on_cpu
from core_mlx_native.masks import additive, seen_from
from core_mlx_native.prefill import Behind, Prefill, windows
from core_mlx_native.rotation import Ends, Mask, View


@dataclass(frozen=True, slots=True)
class Prefix:
    """What prompts begin with, computed once: keys and values [1, kv heads, P, D] of each layer."""

    size: int
    cache: Sequence[KeysValues] = ()


NO_PREFIX = Prefix(0)


def run_prefix(
    decoder: Decoder, ids: Sequence[int], fast: FastPaths, between: Between = nothing
) -> Prefix:
    """Compute a prefix of one token at least."""
    end = [[len(ids) - 1]]
    cache = read(decoder, [ids], end, NO_PREFIX, fast, 1, between).cache
    settle = mx.eval if on_cpu() else mx.async_eval  # lanes take what is computed
    settle([array for layer in cache for array in layer])
    return Prefix(len(ids), cache)


def read(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    prefix: Prefix,
    fast: FastPaths,
    length_step: int = 1,
    between: Between = nothing,
) -> Prefill:
    """Run whole prompts, of which ``prefix`` is computed; hidden states for ``positions`` [B][R].

    Every prompt is longer than the prefix, and its positions stand behind it. Rows are padded to
    a multiple of ``length_step``; ``between`` is called between two layers.
    """
    rows = [prompt[prefix.size :] for prompt in prompts]
    length = rounded_up(max(map(len, rows)), length_step)
    size = prefix.size + length
    tokens = mx.array([[*row, *[0] * (length - len(row))] for row in rows])  # [B, T]
    places = mx.arange(prefix.size, size)[None]  # [1, T]
    view = View(prefix.size, _masks(decoder, places, size, whole=True))
    past = [Behind(*layer) for layer in prefix.cache] or None
    ends = None
    if fast.last_layer:
        columns = mx.array([list(row) for row in positions])  # [B, R]
        ends = Ends(columns - prefix.size, View(columns, _masks(decoder, columns, size)))
    hidden, cache = decoder(tokens, view, past, ends, between)
    kept = tuple(map(tuple, positions)) if fast.last_layer else None
    return Prefill(size, hidden, cache, prefix.size, kept)


def _masks(
    decoder: Decoder, positions: mx.array, size: int, *, whole: bool = False
) -> dict[int, Mask]:
    """One mask for each window. ``whole``: for all tokens, whose mask GPUs have kernels for."""
    return {window: _mask(decoder, positions, size, window, whole) for window in windows(decoder)}


def _mask(decoder: Decoder, positions: mx.array, size: int, window: int, whole: bool) -> Mask:
    hides = 0 < window < size
    capped = decoder.config.attention_cap is not None
    if whole and not (hides or capped or on_cpu()):
        return "causal"
    return additive(seen_from(positions, size, window if hides else 0), decoder.dtype)
