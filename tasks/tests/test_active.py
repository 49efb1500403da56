"""The order in which texts are labelled."""

from __future__ import annotations

import math
import random

from core_tasks.active import Picker
from core_tasks.agreement.baseline import baseline_of


def test_the_least_sure_comes_first_and_then_what_is_new() -> None:
    texts = ["the cat sat", "the cat sat down", "stocks fell", "a failed row"]
    picker = Picker(texts, [0.2, 0.1, 0.3, math.nan])
    assert picker.next([]) == 1
    assert picker.next([1]) == 2
    assert picker.next([1, 2], skipped=[0]) == 3
    assert picker.next([1, 2, 3, 0]) is None


def test_equal_texts_are_labelled_once() -> None:
    picker = Picker(["one  two", "one two", "three"])
    assert picker.next([0]) == 2
    assert picker.next([0, 2]) is None
    assert Picker([]).next([]) is None


def test_only_unsure_texts_compete_by_what_is_new() -> None:
    texts = [f"word{n} common" for n in range(50)] + ["something else entirely"]
    picker = Picker(texts, [n / 100 for n in range(50)] + [0.9])
    labelled: list[int] = []
    for _ in range(31):
        row = picker.next(labelled)
        assert row is not None
        labelled.append(row)
    assert 50 not in labelled
    assert sorted(labelled) == [*range(31)] or max(labelled) < 50


def test_many_rows_without_margins_are_quick_and_spread() -> None:
    drawn = random.Random(0)
    words = [[f"{topic}{n}" for n in range(30)] for topic in "abcde"]
    texts = [" ".join(drawn.sample(words[row % 5], 5)) for row in range(2000)]
    picker = Picker(texts)
    labelled: list[int] = []
    for _ in range(25):
        row = picker.next(labelled)
        assert row is not None
        labelled.append(row)
    assert len({row % 5 for row in labelled[:8]}) == 5
    assert baseline_of([texts[row] for row in labelled], ["abcde"[row % 5] for row in labelled])
