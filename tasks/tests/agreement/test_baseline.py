"""Guessing the commonest label, and naive Bayes on character n-grams, beside scikit-learn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from core_tasks.agreement.baseline import Baseline, baseline_of
from core_tasks.folds import FOLDS, folds_of

SETS = Path(__file__).parents[3] / "benchmarks" / "labelled"


@pytest.mark.parametrize("name", ["topics", "tickets", "sentiment"])
def test_the_classifier_is_that_of_scikit_learn(name: str) -> None:
    with open(SETS / f"{name}.jsonl", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][:200]
    texts, gold = [row["text"] for row in rows], [row["label"] for row in rows]
    labels = sorted(set(gold))
    folds = np.array(folds_of(texts, [labels.index(label) for label in gold]))
    counts = CountVectorizer(
        analyzer="char_wb", ngram_range=(1, 4), preprocessor=str.casefold
    ).fit_transform(texts)
    answers = np.empty(len(gold), dtype=object)
    for fold in range(FOLDS):
        known = folds != fold
        seen = np.asarray(counts[known].sum(axis=0)).ravel() > 0  # its vocabulary is this fold's
        model = MultinomialNB(alpha=0.1).fit(counts[known][:, seen], np.array(gold)[known])
        answers[~known] = model.predict(counts[~known][:, seen])
    baseline = baseline_of(texts, gold)
    assert baseline is not None
    assert baseline.ngrams == pytest.approx(np.mean(answers == np.array(gold)), abs=0.02)
    assert baseline.share == max(map(gold.count, labels)) / len(gold)


def test_too_few_rows_have_no_classifier() -> None:
    assert baseline_of([], []) is None
    assert baseline_of(["x"] * 9, [*"aaaabbbbb"]) == Baseline(9, "b", 5 / 9, None)
    assert baseline_of(["x"] * 20, ["a"] * 20) == Baseline(20, "a", 1.0, None)


def test_texts_without_letters_are_guessed() -> None:
    baseline = baseline_of([""] * 12, [*"aaaaaaaabbbb"])
    assert baseline is not None
    assert (baseline.label, baseline.ngrams) == ("a", 0.0)  # equal texts are in one fold
    assert str(baseline).startswith("always 'a': 66.7 %; character n-grams")
