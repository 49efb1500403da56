"""Reading label probabilities: the labels' inner trie nodes run behind the prompt's sequence.

The first token of every label is read at the prompt's end. Each chain of inner nodes is a sequence
of its own that begins as a copy of the prompt's, so a prompt is never computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.labels import LabelScores, LabelTrie, Path, score_labels
from core_llama_cpp.sampling import log_total
from core_llama_cpp.session import Logits


class LabelReader:
    """The log-probabilities of one prompt's labels, as they are read."""

    def __init__(self, trie: LabelTrie) -> None:
        self._trie = trie
        self._children = dict(zip(trie.prefixes, trie.children, strict=True))
        self._found: dict[Path, list[float]] = {}

    def read(self, node: Path, logits: Logits) -> None:
        """Take the logits behind an inner node; ``()`` is the prompt's end."""
        children = logits[list(self._children[node])].astype(float)
        self._found[node] = (children - log_total(logits)).tolist()

    def scores(self) -> LabelScores:
        """When every inner node was read."""
        return score_labels(self._trie, [self._found[node] for node in self._trie.prefixes])


def chains(trie: LabelTrie) -> list[tuple[Path, int]]:
    """The longest paths of inner nodes, and how many nodes at the end of each are its own.

    Nodes that an earlier chain has too are run again, and read there only.
    """
    inner = set(trie.prefixes)
    ends = [path for path in trie.prefixes if path and not _goes_on(path, trie, inner)]
    read: set[Path] = set()
    found = []
    for path in ends:
        nodes = {path[:end] for end in range(1, len(path) + 1)}
        found.append((path, len(nodes - read)))
        read |= nodes
    return found


def _goes_on(path: Path, trie: LabelTrie, inner: set[Path]) -> bool:
    children: Sequence[int] = trie.children[trie.prefixes.index(path)]
    return any((*path, token) in inner for token in children)
