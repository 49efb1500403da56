"""A batch of tokens of many sequences, and what paged attention is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from core_openvino.blocks import BlockTables
from core_openvino.graph import LONGEST


class PagedBatch:
    """A batch of spans; the owner of a session fills, decodes, reads and clears it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Empty the batch."""
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.spans: list[tuple[int, int]] = []  # sequence, number of tokens
        self.rows: list[int] = []
        self.unread = 0  # blocks that capped attention gathers and does not see

    def add(self, ids: Sequence[int], position: int, sequence: int, reads: int = 0) -> int:
        """Add consecutive tokens of a sequence; see `core_runtime.sequences.session.Batch`."""
        self.ids.extend(ids)
        self.positions.extend(range(position, position + len(ids)))
        if self.spans and self.spans[-1][0] == sequence:
            self.spans[-1] = sequence, self.spans[-1][1] + len(ids)
        elif any(sequence == other for other, _ in self.spans):
            raise ValueError(f"the tokens of sequence {sequence} are not side by side")
        else:
            self.spans.append((sequence, len(ids)))
        first = len(self.ids) - reads
        self.rows.extend(range(first, len(self.ids)))
        return first

    def with_pairs(self) -> PagedBatch:
        """Return the batch with a second token after each lone one, whose row is not read.

        Attention of a single token rounds differently: in bfloat16 the logits of a decoded token
        moved by up to 1.5 (SmolLM2) and 3.0 (Gemma 3) from those of a prompt. With a second one
        these models' are equal to the bit. The second one's key is overwritten by the next token's.
        """
        if all(tokens > 1 for _, tokens in self.spans):
            return self
        paired, start, reads = PagedBatch(), 0, {*self.rows}
        paired.unread = self.unread
        for sequence, tokens in self.spans:
            places = range(start, start + tokens)
            paired.rows += [len(paired.ids) + n for n, place in enumerate(places) if place in reads]
            ids, position = self.ids[start : start + tokens], self.positions[start]
            paired.add(ids * 2 if tokens == 1 else ids, position, sequence)
            start += tokens
        return paired


def places_of(batch: PagedBatch, tables: BlockTables) -> dict[str, Any]:
    """Return the inputs that tell paged attention where each sequence of a batch is."""
    own = [tables.table(sequence) for sequence, _ in batch.spans]
    counts = [tokens for _, tokens in batch.spans]
    ends = [table.size + tokens for table, tokens in zip(own, counts, strict=True)]
    used = [-(-end // tables.width) for end in ends]
    parts = [table.blocks[:many] for table, many in zip(own, used, strict=True)]

    return {
        "past_lens": [table.size for table in own],
        "subsequence_begins": _begins(counts),
        "block_indices": list(chain.from_iterable(parts)),
        "block_indices_begins": _begins(used),
        LONGEST: max(ends),
    }


def _begins(counts: Sequence[int]) -> list[int]:
    """Return the start of each part, and the end of the last one."""
    return [0, *np.cumsum(counts).tolist()]
