"""Reading label probabilities off a prefilled batch.

The first token of every label is read at the prompt's end. Further tokens need the model again:
the inner nodes of the labels' trie run as one more forward pass over the prompt's own keys and
values, each node seeing its ancestors only, so that a prompt is never computed twice.

Shapes: B rows, N trie nodes, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import mlx.core as mx

from core.labels import LabelScores, LabelTrie, Path, score_labels
from core.serving.label_tokens import LabelQuestion
from core_mlx_native import host_math
from core_mlx_native.decoder import Decoder
from core_mlx_native.host import float_rows, on_cpu
from core_mlx_native.masks import additive, tree_allowed
from core_mlx_native.prefill import Behind, Prefill, windows
from core_mlx_native.rotation import View
from core_mlx_native.sampling import log_total

_HEAD_FLOATS = 2**26  # logits held at once: 256 MiB
_NODES = 256  # trie nodes that run together, at most

Edges = list[list[list[float]]]  # [row][node][child] log-probabilities
Head = Callable[[Decoder, mx.array, Sequence[Sequence[int]]], Edges]


def read_labels(
    decoder: Decoder,
    batch: Prefill,
    questions: Sequence[LabelQuestion],
    head: Head | None = None,
    logits: mx.array | None = None,
) -> list[LabelScores]:
    """Score the labels of every row of a batch; ``questions[b]`` belongs to row b.

    ``head`` reads the first tokens of the labels; without, as those behind them. ``logits`` [B, V]
    are those that they are read off, where the head has run already.
    """
    groups: dict[int, list[int]] = {}
    for row, question in enumerate(questions):
        groups.setdefault(id(question.trie), []).append(row)
    scores: dict[int, LabelScores] = {}
    for rows in groups.values():
        trie = questions[rows[0]].trie
        anchors = [questions[row].anchor for row in rows]
        first = head or full_head
        if logits is not None:
            first = partial(
                _known, logits if len(rows) == len(questions) else logits[mx.array(rows)]
            )
        found = _ask(decoder, batch.select(rows), anchors, trie, first)
        for row, logprobs in zip(rows, found, strict=True):
            scores[row] = score_labels(trie, logprobs)
    return [scores[row] for row in range(len(questions))]


def _ask(
    decoder: Decoder, batch: Prefill, anchors: list[int], trie: LabelTrie, head: Head
) -> Edges:
    """Log-probabilities of every edge of the trie, for rows that share it."""
    root = batch.hidden_at([anchor - 1 for anchor in anchors])[:, None]  # [B, 1, H]
    found: dict[Path, list[list[float]]] = {
        (): [row[0] for row in head(decoder, root, trie.children[:1])]
    }
    children = dict(zip(trie.prefixes, trie.children, strict=True))
    for nodes in tree_chunks(trie.prefixes[1:], _NODES):
        hidden = _run_nodes(decoder, batch, anchors, nodes)
        edges = full_head(decoder, hidden, [children[node] for node in nodes])
        for index, node in enumerate(nodes):
            found[node] = [row[index] for row in edges]
    return [[found[prefix][row] for prefix in trie.prefixes] for row in range(len(anchors))]


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


def full_head(decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]) -> Edges:
    """``[row][node][child]`` log-probabilities of given next tokens after hidden [B, N, H]."""
    rows, count = hidden.shape[:2]
    step = max(1, _HEAD_FLOATS // (rows * decoder.config.vocab_size))
    found: Edges = [[] for _ in range(rows)]
    for start in range(0, count, step):
        some = children[start : start + step]
        picked = _edges(decoder.logits(hidden[:, start : start + step]), some)
        for row, edges in zip(found, picked, strict=True):
            row.extend(edges)
    return found


def label_head(decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]) -> Edges:
    """Logits of given next tokens after hidden [B, 1, H], from a head of their rows alone.

    They differ from log-probabilities by one number a row, the same for all labels.
    """
    [tokens] = children
    return [[row] for row in float_rows(decoder.logits_of(hidden[:, 0], mx.array(list(tokens))))]


def _known(
    logits: mx.array, _decoder: Decoder, _hidden: mx.array, children: Sequence[Sequence[int]]
) -> Edges:
    """What `full_head` finds, where the logits [B, V] of its only node are there."""
    return _edges(logits[:, None], children)


def _edges(logits: mx.array, children: Sequence[Sequence[int]]) -> Edges:
    """Log-probabilities of each node's children, from logits [B, N, V]."""
    found: Edges = []
    for values in float_rows(_pick(logits, children)):
        ends = iter(values)
        found.append([[next(ends) for _ in tokens] for tokens in children])
    return found


def _pick(logits: mx.array, children: Sequence[Sequence[int]]) -> mx.array:
    """Log-softmax of logits [B, N, V] at each node's children, side by side: [B, edges]."""
    rows, _, vocabulary = logits.shape
    nodes = mx.array([node for node, tokens in enumerate(children) for _ in tokens])
    tokens = mx.array([token for tokens in children for token in tokens])
    flat = mx.take(logits.reshape(rows, -1), nodes * vocabulary + tokens, axis=1)
    total = mx.array(host_math.log_total(logits)) if on_cpu() else log_total(logits)  # [B, N]
    return flat - mx.take(total, nodes, axis=1)
