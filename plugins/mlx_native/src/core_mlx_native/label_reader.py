"""Reading label probabilities off a prefilled batch.

The first token of every label is read at the prompt's end. Further tokens need the model again:
the inner nodes of the labels' trie run as one more forward pass over the prompt's own keys and
values, each node seeing its ancestors only, so that a prompt is never computed twice.

Shapes: B rows, N trie nodes, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import mlx.core as mx

from core.labels import LabelScores, LabelTrie, Path, score_labels
from core.serving.label_tokens import LabelQuestion
from core_mlx_native.decoder import Decoder
from core_mlx_native.host import float_rows
from core_mlx_native.masks import additive, tree_allowed
from core_mlx_native.prefill import Behind, Prefill, windows
from core_mlx_native.rotation import View
from core_mlx_native.sampling import quick_log_total

_HEAD_FLOATS = 2**26  # logits held at once: 256 MiB
_NODES = 256  # trie nodes that run together, at most

Head = Callable[[Decoder, mx.array, Sequence[Sequence[int]]], list[mx.array]]


@dataclass(frozen=True, slots=True)
class Answered:
    """Rows of a batch whose labels share a trie.

    ``values[r]`` are the log-probabilities of what may follow each of the ``nodes``, one node's
    behind another's.
    """

    rows: Sequence[int]
    trie: LabelTrie
    nodes: Sequence[Path]
    values: Sequence[Sequence[float]]

    def scores(self) -> Iterator[tuple[int, LabelScores]]:
        """Each row with its scores."""
        children = dict(zip(self.trie.prefixes, self.trie.children, strict=True))
        for row, values in zip(self.rows, self.values, strict=True):
            edges = iter(values)
            found = {node: list(islice(edges, len(children[node]))) for node in self.nodes}
            yield row, score_labels(self.trie, [found[prefix] for prefix in self.trie.prefixes])


@dataclass(frozen=True, slots=True)
class Asked:
    """The same on its way: ``values`` are arrays [B, edges], each of some of the nodes."""

    rows: Sequence[int]
    trie: LabelTrie
    nodes: Sequence[Path]
    values: Sequence[mx.array]

    def read(self) -> Answered:
        """Wait for it."""
        parts = zip(*map(float_rows, self.values), strict=True)
        values = [list(chain.from_iterable(row)) for row in parts]
        return Answered(self.rows, self.trie, self.nodes, values)


def ask_labels(
    decoder: Decoder,
    batch: Prefill,
    questions: Sequence[LabelQuestion],
    head: Head | None = None,
    logits: mx.array | None = None,
    begin: int = 0,
) -> list[Asked]:
    """What scores the labels of every row; ``questions[b]`` belongs to row b, ``begin + b`` in all.

    ``head`` reads the first tokens of the labels; without, as those behind them. ``logits`` [B, V]
    are those that they are read off, where the head has run already.
    """
    groups: dict[int, list[int]] = {}
    for row, question in enumerate(questions):
        groups.setdefault(id(question.trie), []).append(row)
    asked = []
    for rows in groups.values():
        first = head or full_head
        if logits is not None:
            first = partial(
                _known, logits if len(rows) == len(questions) else logits[mx.array(rows)]
            )
        anchors = [questions[row].anchor for row in rows]
        trie = questions[rows[0]].trie
        nodes, values = _ask(decoder, batch.select(rows), anchors, trie, first)
        asked.append(Asked([begin + row for row in rows], trie, nodes, values))
    return asked


def label_scores(answered: Iterable[Answered]) -> list[LabelScores]:
    """Those of every row, in order."""
    found = dict(chain.from_iterable(each.scores() for each in answered))
    return [found[row] for row in sorted(found)]


def _ask(
    decoder: Decoder, batch: Prefill, anchors: list[int], trie: LabelTrie, head: Head
) -> tuple[list[Path], list[mx.array]]:
    """Nodes of the trie, all of them, and what follows them, for rows that share it."""
    root = batch.hidden_at([anchor - 1 for anchor in anchors])[:, None]  # [B, 1, H]
    found, values = [trie.prefixes[0]], head(decoder, root, trie.children[:1])
    children = dict(zip(trie.prefixes, trie.children, strict=True))
    for nodes in tree_chunks(trie.prefixes[1:], _NODES):
        hidden = _run_nodes(decoder, batch, anchors, nodes)
        values = values + full_head(decoder, hidden, [children[node] for node in nodes])
        found += nodes
    return found, values


def tree_chunks(prefixes: Sequence[Path], limit: int) -> Iterator[list[Path]]:
    """Split inner nodes into runs of about ``limit`` that each hold their own ancestors."""
    chunk: dict[Path, None] = {}
    for prefix in prefixes:
        line = [prefix[:end] for end in range(1, len(prefix) + 1)]
        missing = [node for node in line if node not in chunk]
        if chunk and len(chunk) + len(missing) > limit:
            yield list(chunk)
            chunk, missing = {}, line
        chunk.update(dict.fromkeys(missing))
    if chunk:
        yield list(chunk)


def _run_nodes(decoder: Decoder, batch: Prefill, anchors: list[int], nodes: list[Path]) -> mx.array:
    """Hidden states of trie nodes behind each row's prompt: [B, N, H]."""
    begins = mx.array(anchors)  # [B]
    depths = mx.array([len(node) - 1 for node in nodes])  # [N]
    tokens = mx.broadcast_to(mx.array([node[-1] for node in nodes]), (len(anchors), len(nodes)))
    masks: dict[int, mx.array | None] = {
        window: additive(tree_allowed(batch.size, begins, nodes, window), decoder.dtype)
        for window in windows(decoder)
    }
    positions = begins[:, None] + depths  # [B, N]
    past = [Behind(*keys_values) for keys_values in batch.cache]
    return decoder(tokens, View(positions, masks), past)[0]


def full_head(
    decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """Log-probabilities of each node's children after hidden [B, N, H]: arrays [B, edges]."""
    rows, count = hidden.shape[:2]
    step = max(1, _HEAD_FLOATS // (rows * decoder.config.vocab_size))
    found = []
    for start in range(0, count, step):
        logits = decoder.logits(hidden[:, start : start + step])
        found.append(_pick(logits, children[start : start + step]))
        if step < count:
            mx.eval(found[-1])  # one after another, or all logits would be held at once
    return found


def label_head(
    decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """Logits of given next tokens after hidden [B, 1, H], from a head of their rows alone.

    They differ from log-probabilities by one number a row, the same for all labels.
    """
    [tokens] = children
    return [decoder.logits_of(hidden[:, 0], mx.array(list(tokens)))]


def _known(
    logits: mx.array, _decoder: Decoder, _hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """What `full_head` finds, where the logits [B, V] of its only node are there."""
    return [_pick(logits[:, None], children)]


def _pick(logits: mx.array, children: Sequence[Sequence[int]]) -> mx.array:
    """Log-softmax of logits [B, N, V] at each node's children, side by side: [B, edges]."""
    rows, _, vocabulary = logits.shape
    nodes = mx.array([node for node, tokens in enumerate(children) for _ in tokens])
    tokens = mx.array([token for tokens in children for token in tokens])
    flat = mx.take(logits.reshape(rows, -1), nodes * vocabulary + tokens, axis=1)
    return flat - mx.take(quick_log_total(logits), nodes, axis=1)
