"""Search for only the best label: of the labels' trie, only nodes that can still win run.

Each row has a `core_runtime.label_search.LabelSearch`. They advance in rounds: the nodes that the
rows want next run as one forward pass after the prompts and the nodes of earlier rounds, whose keys
and values are kept. Rows whose label is decided leave the rounds. Each round waits for the device,
so it runs as many tokens as are worth a pass.

Shapes: B rows, N nodes of a round, M nodes of all rows in a round, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import mlx.core as mx

from core.kit.base import Check
from core.kit.labels import LabelTrie
from core_mlx_native.classify.labels import filled, full_head, label_head, rows_by_trie, run_nodes
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import Prefill
from core_mlx_native.to_python import float_rows
from core_runtime.label_search import LabelSearch, search_tree
from core_runtime.text.label_tokens import LabelQuestion


@dataclass(frozen=True, slots=True)
class _Row:
    """A row in the search.

    ``lines``: the columns visible to the root and to each node that has run, as for `tree_allowed`.
    """

    anchor: int
    search: LabelSearch
    lines: dict[int, list[int]] = field(default_factory=lambda: {0: []})

    @property
    def trie(self) -> LabelTrie:
        """The labels of the row."""
        return self.search.tree.trie

    def place(self, nodes: Sequence[int], column: int) -> None:
        """Record that nodes run in the columns from ``column`` on, counted after the prompt's."""
        parents = self.search.tree.parents
        for own, node in enumerate(nodes, column):
            self.lines[node] = [own, *self.lines[parents[node]]]


def find_labels(
    decoder: Decoder,
    batch: Prefill,
    questions: Sequence[LabelQuestion | None],
    tokens: int,
    check: Check,
) -> dict[int, LabelSearch]:
    """Search the best label of each row with a question; return the finished searches.

    ``questions[b]`` belongs to row b of ``batch``. A round has about ``tokens`` tokens; ``check``
    may raise before each of them.
    """
    rows = _begun(decoder, batch, questions)
    searches = {row: begun.search for row, begun in rows.items()}
    going, batch = list(rows.values()), batch.select(list(rows))

    while going:
        check()
        most = max(1, tokens // len(going))
        wanted = [row.search.wanted(most) for row in going]
        left = [place for place, nodes in enumerate(wanted) if nodes]
        if left:
            going, batch = [going[place] for place in left], batch.select(left)
            batch = _run(decoder, batch, going, [wanted[place] for place in left])
        else:
            going = []
    return searches


def _begun(
    decoder: Decoder, batch: Prefill, questions: Sequence[LabelQuestion | None]
) -> dict[int, _Row]:
    """Read the root of each row's trie at the prompt's end."""
    rows: dict[int, _Row] = {}
    for trie, places in rows_by_trie(questions):
        anchors = [question.anchor for row in places if (question := questions[row])]
        ends = batch.select(places).hidden_at([anchor - 1 for anchor in anchors])[:, None]
        [values] = label_head(decoder, ends, trie.children[:1])
        for row, anchor, logits in zip(places, anchors, float_rows(values), strict=True):
            rows[row] = _Row(anchor, LabelSearch(search_tree(trie)))
            rows[row].search.read(0, logits)
    return dict(sorted(rows.items()))


def _run(
    decoder: Decoder, batch: Prefill, rows: Sequence[_Row], wanted: Sequence[Sequence[int]]
) -> Prefill:
    """Run and read the nodes that each row wants; return the batch with their keys and values."""
    column = batch.cache[0][0].shape[2] - batch.size
    for row, nodes in zip(rows, wanted, strict=True):
        row.place(nodes, column)

    # One pass over all. The root, which sees only the prompt, pads rows that want fewer.
    grid = filled(wanted, 0)
    places = [(row, node) for row, nodes in zip(rows, grid, strict=True) for node in nodes]
    tokens = [path[-1] if path else 0 for path in (row.trie.prefixes[node] for row, node in places)]
    lines = filled([row.lines[node] for row, node in places], -1)
    hidden, cache = run_nodes(
        decoder,
        batch,
        [row.anchor for row in rows],
        mx.array(tokens).reshape(len(rows), -1),  # [B, N]
        mx.array(lines).reshape(len(rows), len(grid[0]), -1),  # [B, N, A]
    )

    # The LM head for the wanted nodes.
    real = [place for place, (_, node) in enumerate(places) if node]
    flat = hidden.reshape(-1, hidden.shape[-1])[mx.array(real)]  # [M, H]
    children = [row.trie.children[node] for row, node in places if node]
    parts = full_head(decoder, flat[None], children)
    values = chain.from_iterable(chain.from_iterable(map(float_rows, parts)))
    for place, next_tokens in zip(real, children, strict=True):
        row, node = places[place]
        row.search.read(node, list(islice(values, len(next_tokens))))
    return replace(batch, cache=cache)
