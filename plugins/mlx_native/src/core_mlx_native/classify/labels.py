"""Reading label probabilities from a prefilled batch.

The first token of every label is read at the prompt's end. Further tokens need the model again: the
inner nodes of the labels' trie run as one more forward pass over the prompt's keys and values, each
node seeing only its ancestors, so a prompt is never computed twice.

Shapes: B rows, N trie nodes, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import mlx.core as mx

from core.errors import CoreError, InvalidModelError
from core.kit.labels import LabelScores, LabelTrie, Path, score_edges
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.masks import additive, tree_allowed
from core_mlx_native.network.prefill import Behind, Prefill, windows
from core_mlx_native.network.rotary import View
from core_mlx_native.network.values import KeysValues
from core_mlx_native.to_python import float_rows
from core_runtime.text.label_tokens import LabelQuestion

_NODES = 256  # maximum of trie nodes that run together

Head = Callable[[Decoder, mx.array, Sequence[Sequence[int]]], list[mx.array]]


@dataclass(frozen=True, slots=True)
class HostLabels:
    """Rows of a batch whose labels share a trie.

    ``values[r]`` are the log-probabilities of the tokens that may follow each of the ``nodes``, in
    node order.
    """

    rows: Sequence[int]
    trie: LabelTrie
    nodes: Sequence[Path]
    values: Sequence[Sequence[float]]

    def scores(self) -> Iterator[tuple[int, LabelScores | CoreError]]:
        """Yield each row with its label scores, or with its error for NaN or infinity."""
        places = None if self.nodes == list(self.trie.prefixes) else self._places()
        for row, values in zip(self.rows, self.values, strict=True):
            in_order = values if places is None else [values[place] for place in places]
            try:
                yield row, score_edges(self.trie, in_order)
            except InvalidModelError as error:
                yield row, error

    def _places(self) -> list[int]:
        """Return the index of each value that the trie needs, in its order; nodes may repeat."""
        children = dict(zip(self.trie.prefixes, self.trie.children, strict=True))
        places: dict[Path, range] = {}
        start = 0
        for node in self.nodes:
            end = start + len(children[node])
            places[node] = range(start, end)
            start = end
        return [place for prefix in self.trie.prefixes for place in places[prefix]]


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The label values queued on the device: arrays [B, edges], each for some of the nodes."""

    rows: Sequence[int]
    trie: LabelTrie
    nodes: Sequence[Path]
    values: Sequence[mx.array]

    def read(self) -> HostLabels:
        """Wait for the values and copy them to the host."""
        parts = zip(*map(float_rows, self.values), strict=True)
        values = [list(chain.from_iterable(row)) for row in parts]
        return HostLabels(self.rows, self.trie, self.nodes, values)


def ask_labels(
    decoder: Decoder,
    batch: Prefill,
    questions: Sequence[LabelQuestion | None],
    head: Head | None = None,
    logits: mx.array | None = None,
    begin: int = 0,
) -> list[DeviceLabels]:
    """Queue the values that score each row's labels, one `DeviceLabels` per distinct trie.

    ``questions[b]`` belongs to row b of ``batch``, which is row ``begin + b`` of the micro-batch;
    None means no question. ``head`` reads the first tokens of the labels, by default `full_head`,
    which always reads the tokens after them. If the LM head has already run, ``logits`` [B, V] are
    its result.
    """
    # Rows with the same labels run together.
    queued = []
    for trie, rows in rows_by_trie(questions):
        # Existing logits give the values of the first tokens.
        first = head or full_head
        if logits is not None:
            first = partial(
                _known, logits if len(rows) == len(questions) else logits[mx.array(rows)]
            )

        # Queue the values of every node of the trie.
        anchors = [question.anchor for row in rows if (question := questions[row])]
        nodes, values = _ask(decoder, batch.select(rows), anchors, trie, first)
        queued.append(DeviceLabels([begin + row for row in rows], trie, nodes, values))

    return queued


def rows_by_trie(
    questions: Sequence[LabelQuestion | None],
) -> list[tuple[LabelTrie, list[int]]]:
    """Return each distinct trie with its rows."""
    groups: dict[int, tuple[LabelTrie, list[int]]] = {}
    for row, question in enumerate(questions):
        if question is not None:
            groups.setdefault(id(question.trie), (question.trie, []))[1].append(row)
    return list(groups.values())


def _ask(
    decoder: Decoder, batch: Prefill, anchors: list[int], trie: LabelTrie, head: Head
) -> tuple[list[Path], list[mx.array]]:
    """Return each trie node and the values of its children, for rows that share the trie."""
    # The labels' first tokens follow the prompt itself.
    root = batch.hidden_at([anchor - 1 for anchor in anchors])[:, None]  # [B, 1, H]
    nodes_read, values = [trie.prefixes[0]], head(decoder, root, trie.children[:1])

    # For further tokens, trie nodes run after the prompt, some of them at a time.
    children = dict(zip(trie.prefixes, trie.children, strict=True))
    for nodes in tree_chunks(trie.prefixes[1:], _NODES):
        tokens = mx.array([[node[-1] for node in nodes]])
        hidden, _ = run_nodes(decoder, batch, anchors, tokens, mx.array([_lines(nodes)]))
        values = values + full_head(decoder, hidden, [children[node] for node in nodes])
        nodes_read += nodes

    return nodes_read, values


def tree_chunks(prefixes: Sequence[Path], limit: int) -> Iterator[list[Path]]:
    """Split inner nodes into runs of about ``limit`` nodes that contain their own ancestors."""
    chunk: dict[Path, None] = {}
    for prefix in prefixes:
        line = [prefix[:end] for end in range(1, len(prefix) + 1)]
        missing = [node for node in line if node not in chunk]

        # A chunk that would grow too large ends here, and the next one repeats the ancestors.
        if chunk and len(chunk) + len(missing) > limit:
            yield list(chunk)
            chunk, missing = {}, line
        chunk.update(dict.fromkeys(missing))
    if chunk:
        yield list(chunk)


def _lines(nodes: Sequence[Path]) -> list[list[int]]:
    """Return the indices of each node and its ancestors, itself first, padded with -1: [N, A]."""
    places = {node: place for place, node in enumerate(nodes)}
    lines = [[places[node[:end]] for end in range(len(node), 0, -1)] for node in nodes]
    return filled(lines, -1)


def filled(rows: Sequence[Sequence[int]], value: int) -> list[list[int]]:
    """Return rows of equal length, the shorter ones padded with the value."""
    length = max(map(len, rows))
    return [[*row, *[value] * (length - len(row))] for row in rows]


def run_nodes(
    decoder: Decoder, batch: Prefill, anchors: Sequence[int], tokens: mx.array, lines: mx.array
) -> tuple[mx.array, list[KeysValues]]:
    """Run trie nodes after each row's prompt and the nodes in ``batch.cache``.

    ``tokens`` are [1 or B, N], ``lines`` [1 or B, N, A] as in `tree_allowed`. Returns hidden states
    [B, N, H], and each layer's keys and values with the nodes' columns at their end.
    """
    begins = mx.array(list(anchors))  # [B]
    count = tokens.shape[1]
    columns = batch.cache[0][0].shape[2] - batch.size + count
    masks: dict[int, mx.array | None] = {
        window: additive(tree_allowed(batch.size, begins, lines, columns, window), decoder.dtype)
        for window in windows(decoder)
    }

    positions = begins[:, None] + (lines >= 0).sum(axis=-1) - 1  # [B, N]
    past = [Behind(*keys_values) for keys_values in batch.cache]
    every = mx.broadcast_to(tokens, (len(anchors), count))
    return decoder(every, View(positions, masks), past)


def full_head(
    decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """Return log-probabilities of each node's children after hidden [B, N, H]: [B, edges] each."""
    rows, count = hidden.shape[:2]
    most = decoder.head_rows
    step = max(1, most // rows)
    values = []

    # The logits of some nodes at a time; where one node's are too many, of some rows.
    for start in range(0, count, step):
        nodes, parts = hidden[:, start : start + step], []
        for row in range(0, rows, most):
            logits = decoder.logits(nodes[row : row + most])
            parts.append(_pick(decoder, logits, children[start : start + step]))
            if rows * count > most:
                decoder.ops.begin(parts[-1:])  # or all logits would be held at once
        values.append(mx.concatenate(parts) if len(parts) > 1 else parts[0])
    return values


def label_head(
    decoder: Decoder, hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """Return logits of given next tokens after hidden [B, 1, H], from their LM head rows only.

    They differ from log-probabilities by one constant per row, the same for all labels.
    """
    [tokens] = children
    return [decoder.logits_of(hidden[:, 0], mx.array(list(tokens)))]


def _known(
    logits: mx.array, decoder: Decoder, _hidden: mx.array, children: Sequence[Sequence[int]]
) -> list[mx.array]:
    """Return the result of `full_head` from the known logits [B, V] of the only node."""
    return [_pick(decoder, logits[:, None], children)]


def _pick(decoder: Decoder, logits: mx.array, children: Sequence[Sequence[int]]) -> mx.array:
    """Return the log-softmax of logits [B, N, V] at all nodes' children: [B, edges]."""
    rows, _, vocabulary = logits.shape
    nodes = mx.array([node for node, tokens in enumerate(children) for _ in tokens])
    tokens = mx.array([token for tokens in children for token in tokens])
    flat = mx.take(logits.reshape(rows, -1), nodes * vocabulary + tokens, axis=1)
    return flat - mx.take(decoder.ops.log_total(logits), nodes, axis=1)
