"""Attention with capped scores, ``cap * tanh(scores / cap)``, out of plain operations (Gemma 2).

OpenVINO's paged attention has no cap, nor has its `scaled_dot_product_attention`. Here, too, block
tables say where keys and values are, but the host writes them: the graph gathers the blocks that a
pass reads, each once, adds the keys and values of the pass's own tokens, and returns these. The CPU
plugin makes one node of the products, the cap, the mask and the softmax.

Tokens of all sequences stay side by side: each is compared with all keys of the pass, and a mask
leaves those of its own sequence. A padded row per sequence would compare less, but copy a shared
block for every sequence, and pad a short past to the longest. The price, on a Xeon with AMX and a
random model of 151 million weights, float32, one thread, CPU ms a row of 50 tokens: 87 in passes of
1024 tokens, 76 in passes of 256, which are therefore the default (mlx_cpu 79; bfloat16 25 and 27).
Eight streams that decode after 1,000 tokens take 43 ms a token, and 10 after 100.

Shapes: T tokens of a pass, B blocks that it reads, K keys of these and of its tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as ops

from core_openvino.blocks import BlockTables, Table
from core_runtime.checkpoint.config import ModelConfig

WIDTH = 32
"""Positions of a block, as OpenVINO's paged attention has them on a CPU."""
BLOCKS = "blocks"
_HIDDEN = -1e4  # far below any cap, and exact enough in bfloat16


def mask_name(window: int) -> str:
    """Return the name of the input with the mask of the layers with a window: [T, K]."""
    return f"mask.{window}"


class Mixed(NamedTuple):
    """The output of attention, [T, heads * D], and keys and values to store: [T, kv heads, D]."""

    output: ov.Node
    keys: ov.Node
    values: ov.Node


class Cached(NamedTuple):
    """The inputs that give the past: key and value blocks of a layer, and which of them: [B]."""

    keys: ov.Node
    values: ov.Node
    blocks: ov.Node


def attention(
    config: ModelConfig,
    queries: ov.Node,
    keys: ov.Node,
    values: ov.Node,
    cached: Cached,
    mask: ov.Node,
) -> Mixed:
    """Return attention of tokens, [T, heads * D] each, over cached keys and their own."""
    heads, size = config.num_kv_heads, config.head_dim
    kind = cached.keys.get_element_type()
    new = [ops.convert(ops.reshape(x, _ints(-1, heads, size), False), kind) for x in (keys, values)]
    all_keys, all_values = (
        _joined(blocks, cached.blocks, x)
        for blocks, x in zip((cached.keys, cached.values), new, strict=True)
    )

    # Queries that share keys: [kv heads, heads per key, T, D]. Scaled here, they are few.
    cap = config.attention_cap or 1.0
    scaled = ops.multiply(queries, _number(config.attention_scale / cap))
    split = ops.reshape(scaled, _ints(0, heads, config.num_heads // heads, size), True)
    asking = ops.transpose(split, _ints(1, 2, 0, 3))
    products = ops.matmul(asking, all_keys, False, True)  # [kv heads, heads per key, T, K]
    scores = ops.multiply(ops.tanh(products), _number(cap))
    mixed = ops.matmul(ops.softmax(ops.add(scores, mask), -1), all_values, False, False)
    width = config.num_heads * size
    return Mixed(
        ops.reshape(ops.transpose(mixed, _ints(2, 0, 1, 3)), _ints(-1, width), False), *new
    )


def _joined(cache: ov.Node, blocks: ov.Node, new: ov.Node) -> ov.Node:
    """Return the keys or values of blocks, and the new ones after them: [kv heads, 1, K, D]."""
    heads, size = (new.get_output_partial_shape(0)[axis].get_length() for axis in (1, 2))
    # A block has its heads first: taking each head's part spares a transposed copy.
    parts = ops.reshape(cache, _ints(-1, WIDTH, size), False)
    first = ops.multiply(blocks, ops.constant(np.array(heads, np.int32)))
    places = ops.add(first, ops.constant(np.arange(heads, dtype=np.int32)[:, None]))
    past = ops.reshape(ops.gather(parts, places, _ints(0)), _ints(heads, 1, -1, size), False)
    own = ops.unsqueeze(ops.transpose(new, _ints(1, 0, 2)), _ints(1))
    return ops.convert(ops.concat([past, own], 2), ov.Type.f32)


def _ints(*values: int) -> ov.Node:
    return ops.constant(np.array(values, np.int64))


def _number(value: float) -> ov.Node:
    return ops.constant(np.array(value, np.float32))


# ------------------------------------------------------------ on the host

Spans = Sequence[tuple[int, int]]


class Reach:
    """The keys that the tokens of a pass see, by their place among the K that it reads.

    ``unread`` more blocks are gathered, which no token sees.
    """

    def __init__(self, tables: BlockTables, spans: Spans, unread: int = 0) -> None:
        self._tables: list[tuple[Table, int]] = [
            (tables.table(sequence), tokens) for sequence, tokens in spans
        ]
        past = {block: None for table, _ in self._tables for block in _past(table)}
        self.blocks = np.array([*past, *[0] * unread], np.int32)
        self._places = dict(zip(past, range(len(past)), strict=True))

    def masks(self, windows: Iterable[int]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the mask of each window, 0 being all positions, by the name of its input."""
        own = WIDTH * len(self.blocks)  # the first place of the pass's own tokens
        count = sum(tokens for _, tokens in self._tables)
        masks = {
            window: np.full((count, own + count), _HIDDEN, np.float32) for window in set(windows)
        }
        first = 0
        for table, tokens in self._tables:
            starts = np.array([self._places[block] * WIDTH for block in _past(table)], np.int64)
            places = (starts[:, None] + np.arange(WIDTH)).reshape(-1)[: table.size]
            places = np.concatenate([places, own + first + np.arange(tokens)])
            distances = (table.size + np.arange(tokens))[:, None] - np.arange(len(places))
            for window, mask in masks.items():
                seen = (distances >= 0) & (distances < (window or len(places)))
                mask[first : first + tokens, places] = np.where(seen, 0, _HIDDEN)
            first += tokens
        return {mask_name(window): mask for window, mask in masks.items()}

    def cells(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return where each token's keys and values go: its block, and its place therein."""
        positions = [table.size + np.arange(tokens) for table, tokens in self._tables]
        blocks = [
            np.array(table.blocks)[own // WIDTH]
            for (table, _), own in zip(self._tables, positions, strict=True)
        ]
        return np.concatenate(blocks), np.concatenate(positions) % WIDTH


def _past(table: Table) -> list[int]:
    """Return the blocks that hold the positions before a pass."""
    return table.blocks[: -(-table.size // WIDTH)]
