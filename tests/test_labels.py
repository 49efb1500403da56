"""Label mathematics against brute force over small made-up language models."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidModelError, LabelError
from core.kit.labels import LabelTrie, build_trie, label_paths, label_texts, score_labels

VOCAB = 4


def conditional(prefix: tuple[int, ...]) -> list[float]:
    """A fixed next-token distribution for each prefix: the made-up language model."""
    draw = random.Random(repr(prefix))
    weights = [draw.random() + 0.01 for _ in range(VOCAB)]
    return [weight / sum(weights) for weight in weights]


def joint(path: tuple[int, ...]) -> float:
    return math.prod(conditional(path[:end])[token] for end, token in enumerate(path))


def ask(trie: LabelTrie) -> list[list[float]]:
    return [
        [math.log(conditional(prefix)[token]) for token in tokens]
        for prefix, tokens in zip(trie.prefixes, trie.children, strict=True)
    ]


paths_strategy = st.lists(
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4).map(tuple),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(paths_strategy)
def test_scores_are_joint_probabilities_and_mass_counts_each_text_once(
    paths: list[tuple[int, ...]],
) -> None:
    labels = [f"label {i}" for i in range(len(paths))]
    trie = build_trie(labels, paths)
    scores = score_labels(trie, ask(trie))

    for label, path in zip(labels, paths, strict=True):
        assert scores.logprobs[label] == pytest.approx(math.log(joint(path)))
    total = sum(joint(path) for path in paths)
    assert scores.probabilities == pytest.approx(
        {label: joint(path) / total for label, path in zip(labels, paths, strict=True)}
    )
    # Brute force: every text of four tokens that starts with some label.
    texts = itertools.product(range(VOCAB), repeat=4)
    mass = sum(joint(text) for text in texts if any(text[: len(p)] == p for p in paths))
    assert scores.label_mass == pytest.approx(mass)
    ranked = [*sorted(scores.probabilities.values(), reverse=True), 0.0]
    assert scores.margin == pytest.approx(ranked[0] - ranked[1])
    assert scores.probabilities[scores.label] == ranked[0]


@given(paths_strategy)
def test_prefixes_are_exactly_the_inner_nodes_parents_first(paths: list[tuple[int, ...]]) -> None:
    trie = build_trie([str(path) for path in paths], paths)
    inner = {path[:end] for path in paths for end in range(len(path))}
    assert set(trie.prefixes) == inner
    assert len(trie.prefixes) == len(inner)
    seen = set()
    for prefix in trie.prefixes:
        assert prefix == () or prefix[:-1] in seen
        seen.add(prefix)
    for prefix, tokens in zip(trie.prefixes, trie.children, strict=True):
        assert set(tokens) == {p[len(prefix)] for p in paths if p[: len(prefix)] == prefix != p}


def test_one_label_has_all_probability_and_its_mass_is_the_answer() -> None:
    trie = build_trie(["yes"], [(1,)])
    scores = score_labels(trie, [[math.log(0.25)]])
    assert (scores.label, scores.probabilities, scores.margin) == ("yes", {"yes": 1.0}, 1.0)
    assert scores.label_mass == pytest.approx(0.25)


def test_a_label_that_extends_another_adds_no_mass() -> None:
    trie = build_trie(["no", "no way"], [(1,), (1, 2)])
    scores = score_labels(trie, [[math.log(0.5)], [math.log(0.5)]])
    assert scores.label_mass == pytest.approx(0.5)
    assert scores.probabilities == pytest.approx({"no": 2 / 3, "no way": 1 / 3})


def test_impossible_labels_are_equally_unlikely_and_never_nan() -> None:
    trie = build_trie(["a", "b"], [(0,), (1,)])
    scores = score_labels(trie, [[-math.inf, -math.inf]])
    assert scores.probabilities == {"a": 0.5, "b": 0.5}
    assert scores.label_mass == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("others", [-1.0, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_is_no_log_probability_is_an_error(bad: float, others: float, place: int) -> None:
    """However the others are: a maximum may pass over NaN, and a sum of infinities make one."""
    values = [others] * 3
    values[place] = bad
    trie = build_trie(["a", "b", "c"], [(0,), (1,), (2,)])
    with pytest.raises(InvalidModelError, match=f"'{'abc'[place]}' has the log-probability {bad}"):
        score_labels(trie, [values])
    longer = build_trie(["a", "b c", "b d"], [(0,), (1, 2), (1, 3)])
    with pytest.raises(InvalidModelError, match="'b c' has the log-probability"):
        score_labels(longer, [[-1.0, others], [bad, -1.0]])


def test_ten_thousand_labels_are_scored() -> None:
    paths = [tuple(map(int, str(i))) for i in range(10_000)]
    trie = build_trie([str(i) for i in range(10_000)], paths)
    scores = score_labels(trie, [[math.log(0.1)] * len(tokens) for tokens in trie.children])
    assert sum(scores.probabilities.values()) == pytest.approx(1.0)
    assert scores.label_mass == pytest.approx(1.0)  # every text starts with one of ten digits


def test_labels_without_tokens_or_with_equal_tokens_are_refused() -> None:
    with pytest.raises(LabelError, match="'b' adds no token"):
        build_trie(["a", "b"], [(1,), ()])
    with pytest.raises(LabelError, match="'a' and 'c' have the same tokens"):
        build_trie(["a", "b", "c"], [(1,), (2,), (1,)])


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("Topic:", " news"), ("Topic: ", "news"), ("Topic:\n", "news"), ("", " news")],
)
def test_the_prefix_is_left_out_after_white_space(prompt: str, expected: str) -> None:
    assert label_texts(prompt, ["news"], " ") == [expected]


def never() -> list[list[int]]:
    raise AssertionError("the labels' own tokens are not needed here")


def test_labels_begin_behind_the_prompt_when_no_token_spans_the_border() -> None:
    assert label_paths([1, 2], [[1, 2, 3], [1, 2, 4, 5]], never) == (2, [(3,), (4, 5)])


def test_labels_begin_earlier_when_a_token_spans_the_border() -> None:
    # "Answer: " + "news": the tokenizer joins the space with the word.
    assert label_paths([1, 2, 9], [[1, 2, 3], [1, 2, 9, 4]], never) == (2, [(3,), (9, 4)])


def test_labels_stand_alone_when_the_whole_prompt_melts_into_them() -> None:
    assert label_paths([9], [[3], [4]], lambda: [[7], [8]]) == (1, [(7,), (8,)])
