"""What is chosen, and that no row is judged by a head that has seen it."""

from __future__ import annotations

import numpy as np
import pytest

from core_learn.crossvalidation import (
    MOST_FOLDS,
    Trial,
    best,
    best_scale,
    doubt,
    early_exit,
    folds,
    trials,
    unseen_scores,
)
from core_learn.heads import KINDS, log_probabilities


def trial(layer: int, accuracy: float, loss: float = 0.1, strength: float = 1.0) -> Trial:
    return Trial(layer, "ridge", strength, accuracy, loss, 1.0)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (2, 30), (9, 11, 8)], ids=str)
def test_each_row_is_left_out_once_and_each_class_is_in_every_fold(sizes: tuple[int, ...]) -> None:
    classes = np.repeat(np.arange(len(sizes)), sizes)
    found = folds(classes, np.arange(len(classes)))
    assert len(found) == min(MOST_FOLDS, *sizes)
    assert sorted(np.concatenate(found)) == list(range(len(classes)))
    for fold in found:
        assert set(classes[fold]) == set(range(len(sizes)))


@pytest.mark.parametrize("times", [2, 3, 10])
def test_rows_with_equal_texts_are_in_one_fold(times: int) -> None:
    texts = np.tile(np.arange(30), times)
    classes = texts % 3
    found = folds(classes, texts)
    assert len(found) == MOST_FOLDS
    assert sorted(np.concatenate(found)) == list(range(30 * times))
    for fold in found:
        assert set(classes[fold]) == {0, 1, 2}
        assert np.isin(texts, texts[fold]).sum() == len(fold)
    assert len(folds(classes, texts, 5)) == 5


def test_a_text_with_several_classes_counts_for_the_one_that_most_of_its_rows_have() -> None:
    texts = np.array([0, 0, 0, 1, 2, 3, 4])
    classes = np.array([0, 0, 1, 0, 1, 1, 1])
    found = folds(classes, texts)
    assert [set(texts[fold]) for fold in found] == [{0, 2, 4}, {1, 3}]


def test_a_class_of_one_text_leaves_nothing_out() -> None:
    classes = np.array([0, 0, 1])
    assert folds(classes, np.arange(3)) == []
    assert folds(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 2, 2])) == []
    assert list(trials({1: np.eye(3)}, classes, np.arange(3), 2, tuple(KINDS))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_is_seen_by_the_head_that_judges_it(kind: str) -> None:
    """Labels at random cannot be told; a head that had seen its rows would tell them all."""
    random = np.random.default_rng(0)
    rows, classes = random.normal(size=(60, 400)), np.arange(60) % 2
    scores = unseen_scores(rows, classes, 2, kind, folds(classes, np.arange(60)))
    unseen = (scores.argmax(axis=2) == classes).mean(axis=1)
    path, strengths = KINDS[kind]
    seen = [
        (head.scores(rows).argmax(axis=1) == classes).mean()
        for head in path(rows, classes, 2, strengths)
    ]
    assert max(unseen) < 0.8
    assert max(seen) == 1.0


def test_the_highest_layer_stands_unless_another_is_better_beyond_doubt() -> None:
    some = [trial(4, 1.0), trial(8, 0.9, 0.3), trial(8, 0.9, 0.2, 2.0)]
    assert best(some, 16) == some[2]
    assert best(some, 1000) == some[0]
    assert 0 < doubt(1.0, 16) < doubt(0.9, 16)


def test_an_early_exit_takes_rows_enough_to_tell() -> None:
    some = [trial(2, 0.8), trial(4, 1.0, 0.3), trial(4, 1.0, 0.2, 2.0), trial(8, 1.0)]
    assert early_exit(some, 16) is None
    assert early_exit(some, 200) == some[2]
    assert early_exit([some[0], some[3]], 200) is None


def test_a_scale_is_found_and_is_never_certain() -> None:
    random = np.random.default_rng(0)
    classes = np.arange(400) % 3
    scores = random.normal(size=(400, 3))
    scores[np.arange(400), classes] += 2.0  # log-likelihoods of such scores: twice the scores
    _, scale = best_scale(scores, classes)
    assert 1.6 < scale < 2.4
    assert best_scale(scores * 10, classes)[1] == pytest.approx(scale / 10, rel=0.2)

    few = np.eye(2)[[0, 1] * 8]
    likely = np.exp(log_probabilities(few, best_scale(few, np.arange(16) % 2)[1]))
    assert 0.9 < likely.max() < 0.99


def test_a_layer_on_which_all_rows_are_alike_is_left_out() -> None:
    random = np.random.default_rng(0)
    states = {0: np.ones((8, 5)), 1: random.normal(size=(8, 5))}
    found = list(trials(states, np.arange(8) % 2, np.arange(8), 2, tuple(KINDS)))
    assert {each.layer for each in found} == {1}
    assert {each.kind for each in found} == set(KINDS)
