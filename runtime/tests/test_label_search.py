"""The search for the best label against reading all of them, over random tries and values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kit.labels import LabelTrie, Path, build_trie, score_labels
from core_runtime.label_search import LabelSearch, search_tree

Values = Sequence[Sequence[float]]  # of the children of each inner node, as `score_labels` takes

# Few different values, that ties are common; sums of eighths are exact in any order.
LOGPROBS = st.sampled_from([-math.inf, *(-eighths / 8 for eighths in (0, 0, 1, 2, 5, 20, 99))])
PATHS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple),
    min_size=1,
    max_size=30,
    unique=True,
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[LabelTrie, list[list[float]]]:
    """A trie, nested labels among its own, and values for the children of each inner node."""
    paths = draw(PATHS)
    trie = build_trie([f"label {place}" for place in range(len(paths))], paths)
    count = sum(map(len, trie.children))
    values = iter(draw(st.lists(LOGPROBS, min_size=count, max_size=count)))
    return trie, [[next(values) for _ in tokens] for tokens in trie.children]


def begun(trie: LabelTrie, values: Values) -> LabelSearch:
    search = LabelSearch(search_tree(trie))
    search.read(0, values[0])
    return search


def searched(trie: LabelTrie, values: Values, most: int) -> tuple[LabelSearch, list[list[int]]]:
    """A search at its end, and the nodes of each round."""
    search, rounds = begun(trie, values), list[list[int]]()
    while wanted := search.wanted(most):
        rounds.append(wanted)
        for node in wanted:
            search.read(node, values[node])
    return search, rounds


def bounds(trie: LabelTrie, values: Values) -> dict[Path, float]:
    """The sum of the values along the path to each node and label."""
    sums: dict[Path, float] = {(): 0.0}
    for path, tokens, row in zip(trie.prefixes, trie.children, values, strict=True):
        sums |= {(*path, token): sums[path] + v for token, v in zip(tokens, row, strict=True)}
    return sums


@given(asked(), st.integers(1, 40))
def test_the_label_is_the_one_that_reading_all_gives(
    question: tuple[LabelTrie, list[list[float]]], most: int
) -> None:
    trie, values = question
    search, _ = searched(trie, values, most)
    assert search.label == score_labels(trie, values).label
    assert not search.broken


@given(asked(), st.integers(1, 40))
def test_rounds_have_nodes_once_each_after_its_parent_and_no_more_than_asked_for(
    question: tuple[LabelTrie, list[list[float]]], most: int
) -> None:
    trie, values = question
    _, rounds = searched(trie, values, most)
    seen: set[tuple[int, ...]] = {()}
    for wanted in rounds:
        assert 1 <= len(wanted) <= most
        for node in wanted:
            path = trie.prefixes[node]
            assert path not in seen
            assert path[:-1] in seen
            seen.add(path)


@given(asked())
def test_one_by_one_only_nodes_are_read_that_no_label_beats_yet(
    question: tuple[LabelTrie, list[list[float]]],
) -> None:
    """Best-first with an admissible bound: nothing worse than the winner is ever read."""
    trie, values = question
    _, rounds = searched(trie, values, 1)
    sums = bounds(trie, values)
    best = max(sums[path] for path in trie.paths)
    assert all(sums[trie.prefixes[node]] >= best for [node] in rounds)


@given(asked(), st.sampled_from([-7.5, 0.0, 300.0]), st.integers(1, 8))
def test_the_first_tokens_may_be_off_by_one_number(
    question: tuple[LabelTrie, list[list[float]]], shift: float, most: int
) -> None:
    trie, values = question
    shifted = [[value + shift for value in values[0]], *values[1:]]
    assert searched(trie, shifted, most)[0].label == searched(trie, values, most)[0].label


@given(asked(), st.integers(1, 40), st.sampled_from([math.nan, math.inf]), st.data())
def test_values_that_are_no_numbers_count_where_a_label_after_them_may_be_best(
    question: tuple[LabelTrie, list[list[float]]], most: int, bad: float, data: st.DataObject
) -> None:
    """However many nodes a round has, and so whichever rows are asked together."""
    trie, values = question
    sums = bounds(trie, values)
    node = data.draw(st.integers(0, len(values) - 1))
    values[node][data.draw(st.integers(0, len(values[node]) - 1))] = bad
    search, _ = searched(trie, values, most)

    start = trie.prefixes[node]
    after = [path[: len(start)] == start and path != start for path in trie.paths]
    ranked = [(-sums[path], label) for label, path in enumerate(trie.paths) if not after[label]]
    best = min(ranked, default=(math.inf, len(after)))
    assert search.broken == ((-sums[start], after.index(True)) < best)
    assert search.broken or search.label == trie.labels[best[1]]
    assert search.wanted(40) == []


def test_of_seventy_labels_few_nodes_are_read_where_one_is_likely() -> None:
    paths = [
        (first, second, third) for first in range(7) for second in range(5) for third in (0, 1)
    ]
    trie = build_trie([str(path) for path in paths], paths)
    values = [[-0.1, *[-5.0] * (len(tokens) - 1)] for tokens in trie.children]
    search, rounds = searched(trie, values, 1)
    assert len(trie.prefixes) == 43
    assert search.label == "(0, 0, 0)"
    assert [trie.prefixes[node] for [node] in rounds] == [(0,), (0, 0)]


def test_a_label_that_begins_another_wins_where_the_other_is_less_likely() -> None:
    trie = build_trie(["no way", "no", "yes"], [(1, 2), (1,), (3,)])
    values = {
        "no way": [[-0.5, -2.0], [0.0]],
        "no": [[-0.5, -2.0], [-1.0]],
        "yes": [[-2.0, -0.5], [-1.0]],
    }
    for label, some in values.items():
        search, rounds = searched(trie, some, 1)
        assert search.label == label
        # Any extension of the best label can only tie with it, and a first label wins a tie.
        assert len(rounds) == (0 if label == "yes" else 1)


def test_all_that_is_left_is_read_at_once_where_it_fits() -> None:
    trie = build_trie(["a", "b", "c"], [(1, 1, 1, 1), (1, 1, 2), (3, 1)])
    values = [[-1.0] * len(tokens) for tokens in trie.children]
    _, [whole] = searched(trie, values, 4)
    assert [trie.prefixes[node] for node in whole] == [(1,), (3,), (1, 1), (1, 1, 1)]
    _, rounds = searched(trie, values, 3)
    assert len(rounds) > 1


@pytest.mark.parametrize("most", [1, 500])
def test_labels_are_searched_by_the_thousand(most: int) -> None:
    paths = [tuple(map(int, str(i))) for i in range(10_000)]
    trie = build_trie([str(i) for i in range(10_000)], paths)
    values = [[-0.1 if token == 7 else -2.0 for token in tokens] for tokens in trie.children]
    assert searched(trie, values, most)[0].label == "7"


def test_rows_with_one_trie_share_its_tree() -> None:
    trie = build_trie(["a", "b"], [(1, 2), (3,)])
    assert search_tree(trie) is search_tree(build_trie(["a", "b"], [(1, 2), (3,)]))
