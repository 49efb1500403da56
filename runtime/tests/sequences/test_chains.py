"""The branches of a trie of labels, as few as read every node."""

from __future__ import annotations

from core.kit.labels import build_trie
from core_runtime.label_search import SearchTree
from core_runtime.sequences.labels import chains


def test_chains_read_each_node_once_and_run_what_is_before_it() -> None:
    paths = [(1, 2, 3, 4), (1, 2, 5, 6), (1, 7), (8, 9)]
    tree = SearchTree(build_trie([str(path) for path in paths], paths))
    node = {path: place for place, path in enumerate(tree.trie.prefixes)}
    every = range(1, len(tree.children))
    one, two, other = [(1,), (1, 2), (1, 2, 3)], [(1,), (1, 2), (1, 2, 5)], [(8,)]
    assert chains(tree, every) == [
        ([node[path] for path in one], 3),
        ([node[path] for path in two], 1),
        ([node[path] for path in other], 1),
    ]
    assert chains(tree, [node[(1, 2)]]) == [([node[(1,)], node[(1, 2)]], 1)]
    assert chains(tree, []) == []
