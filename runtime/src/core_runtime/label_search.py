"""A best-first search for the best label, which reads few of a trie's inner nodes.

A label's score is the sum of log-probabilities, none above 0, along its path in the `LabelTrie`. So
the sum up to a node, its *bound*, is at least the score of every label below the node. Nodes with
the largest bounds are read first, some per round, until the best label that was read completely has
at least the bound of every unread node: it is the label that `score_labels` returns.

The values after the root may all have the same offset (logits in place of log-probabilities): all
bounds and scores then have it, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import nsmallest
from typing import NamedTuple

from core.kit.labels import LabelTrie


class TrieChild(NamedTuple):
    """A token that may follow an inner node: the ``node`` it leads to, the ``label`` it completes.

    At least one of them is not None; a label that is a prefix of another has both. A node is
    its place in ``trie.prefixes``, and a label its place in ``trie.labels``.
    """

    node: int | None
    label: int | None


class SearchTree:
    """A trie for searches. ``children[n]`` are the children of inner node n, in the trie's order.

    ``parents[n]`` is the node before it, 0 for the root itself; ``sizes[n]`` the number of inner
    nodes that begin with node n, itself included; ``first[n]`` the first label below it.
    """

    def __init__(self, trie: LabelTrie) -> None:
        self.trie = trie
        nodes = {path: node for node, path in enumerate(trie.prefixes)}
        ends = {path: label for label, path in enumerate(trie.paths)}
        self.children = [
            [TrieChild(nodes.get((*path, token)), ends.get((*path, token))) for token in tokens]
            for path, tokens in zip(trie.prefixes, trie.children, strict=True)
        ]

        self.parents = [nodes[path[:-1]] for path in trie.prefixes]

        # Children come after their parents, so the last node is complete first.
        self.sizes = [1] * len(nodes)
        self.first = [len(ends)] * len(nodes)
        for node in reversed(range(len(nodes))):
            for below, label in self.children[node]:
                if label is not None:
                    self.first[node] = min(self.first[node], label)
                if below is not None:
                    self.sizes[node] += self.sizes[below]
                    self.first[node] = min(self.first[node], self.first[below])

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root's child down to a node, itself included."""
        path = []
        while node:
            path.append(node)
            node = self.parents[node]
        return path[::-1]


@lru_cache(maxsize=16)
def search_tree(trie: LabelTrie) -> SearchTree:
    """Return the tree of a trie; rows that share the trie share the tree."""
    return SearchTree(trie)


class LabelSearch:
    """The search for one prompt's best label. The root, node 0, is read first."""

    def __init__(self, tree: SearchTree) -> None:
        self.tree = tree
        self._bounds = {0: 0.0}  # of each unread node whose parent was read
        self._broken: dict[int, float] = {}  # the bounds of nodes with NaN or +infinity
        self._score, self._best = -math.inf, len(tree.trie.labels)

    @property
    def label(self) -> str:
        """The best of the labels that were read completely; of all labels once none is `wanted`."""
        return self.tree.trie.labels[self._best]

    @property
    def broken(self) -> bool:
        """True if no node is `wanted`, and a label after NaN or +infinity may be the best.

        This does not depend on the size of the rounds: such a node is read in any case.
        """
        return any(self._may_win(node, bound) for node, bound in self._broken.items())

    def wanted(self, most: int) -> list[int]:
        """Return up to ``most`` nodes to read next, parents before children; none at the end.

        If at most ``most`` nodes are left, all of them are returned; otherwise only nodes whose
        parent was read.
        """
        bounds = {node: bound for node, bound in self._bounds.items() if self._may_win(node, bound)}
        self._bounds = bounds
        if sum(self.tree.sizes[node] for node in bounds) <= most:
            return self._with_all_below(bounds)
        return nsmallest(most, bounds, key=lambda node: (-bounds[node], node))

    def read(self, node: int, logprobs: Sequence[float]) -> None:
        """Take the log-probabilities of a node's children; its parent must have been read."""
        bound = self._bounds.pop(node, None)
        if bound is None:  # its parent is broken
            return
        if not all(logprob < math.inf for logprob in logprobs):  # NaN is not less, either
            self._broken[node] = bound
            return
        for (below, label), logprob in zip(self.tree.children[node], logprobs, strict=True):
            score = bound + logprob
            if below is not None:
                self._bounds[below] = score
            if label is not None and (-score, label) < (-self._score, self._best):
                self._score, self._best = score, label

    def _may_win(self, node: int, bound: float) -> bool:
        """Return True if a label below the node may be better.

        Of equally good labels the first is the best.
        """
        return (-bound, self.tree.first[node]) < (-self._score, self._best)

    def _with_all_below(self, nodes: Iterable[int]) -> list[int]:
        below = sorted(nodes)
        for node in below:  # it grows during the loop
            below += [child.node for child in self.tree.children[node] if child.node is not None]
        return below
