"""Folds: labels are dealt evenly, the order of rows does not matter, equal texts stay together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tasks.folds import folds_of, main_labels, text_key


@given(st.lists(st.integers(0, 3), min_size=10, max_size=80), st.randoms())
@settings(max_examples=50, deadline=None)
def test_folds_hold_as_many_of_each_label(gold: list[int], draw: random.Random) -> None:
    texts = [f"text {n}" for n in range(len(gold))]
    folds = folds_of(texts, gold)
    for label in set(gold):
        sizes = [
            sum(f == fold for f, g in zip(folds, gold, strict=True) if g == label)
            for fold in range(5)
        ]
        assert max(sizes) - min(sizes) <= 1
    order = draw.sample(range(len(gold)), len(gold))
    again = folds_of([texts[n] for n in order], [gold[n] for n in order])
    assert again == [folds[n] for n in order]


def test_equal_texts_are_in_one_fold() -> None:
    texts = [f"text {n % 7}" for n in range(40)]
    folds = folds_of(texts, [n % 2 for n in range(40)])
    assert all(
        len({f for f, t in zip(folds, texts, strict=True) if t == text}) == 1 for text in texts
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=40), st.randoms())
def test_equal_texts_with_several_labels_are_dealt_in_any_order(
    rows: list[tuple[int, int]], draw: random.Random
) -> None:
    texts, gold = [f"text {n}" for n, _ in rows], [label for _, label in rows]
    folds = folds_of(texts, gold, 3)
    order = draw.sample(range(len(rows)), len(rows))
    again = folds_of([texts[n] for n in order], [gold[n] for n in order], 3)
    assert again == [folds[n] for n in order]


@pytest.mark.parametrize("other", ["a  b", " a b", "a\tb\n", "a\u00a0b"])
def test_white_space_makes_no_other_text(other: str) -> None:
    assert text_key(other) == text_key("a b")
    texts = [*(f"text {n}" for n in range(20)), "a b", other]
    folds = folds_of(texts, [n % 2 for n in range(22)])
    assert folds[-1] == folds[-2]
    assert text_key("A b") != text_key("a b") != text_key("ab")


def test_a_text_counts_for_the_label_that_most_of_its_rows_have() -> None:
    texts, gold = ["a", "b", "a ", "b", "a", "c"], [1, 2, 0, 1, 1, 0]
    assert main_labels(texts, gold) == {"a": 1, "b": 1, "c": 0}
    assert main_labels(texts, None) == {"a": 0, "b": 0, "c": 0}
