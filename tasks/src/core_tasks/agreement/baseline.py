"""Accuracies without a model: always the commonest label, and naive Bayes on character n-grams."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from core_tasks.folds import FOLDS, folds_of

_LONGEST = 4  # characters of an n-gram
_CHARACTERS = 300  # of a text that are counted
_MOST_ROWS = 1000  # that the classifier learns and judges, evenly spaced: a few seconds at most
_SMOOTHING = 0.1
_FEWEST = 2 * FOLDS


@dataclass(frozen=True, slots=True)
class Baseline:
    """Accuracies to compare a model's with, on the same rows.

    ``share`` is that of always answering ``label``, the commonest one. ``ngrams`` is that of a
    character n-gram classifier in 5-fold cross-validation; None for fewer than ten rows, or one
    label.
    """

    rows: int
    label: str
    share: float
    ngrams: float | None

    def __str__(self) -> str:
        """Return the accuracies in words."""
        text = f"always {self.label!r}: {100 * self.share:.1f} %"
        if self.ngrams is None:
            return text
        return (
            f"{text}; character n-grams (naive Bayes, {FOLDS}-fold cross-validated): "
            f"{100 * self.ngrams:.1f} %"
        )


def baseline_of(texts: Sequence[str], gold: Sequence[str]) -> Baseline | None:
    """Return the baseline of texts and their gold labels; None without rows.

    The classifier is multinomial naive Bayes (A. McCallum, K. Nigam, A comparison of event models
    for naive Bayes text classification, AAAI 1998) over the n-grams of one to four characters
    within the words of the first 300 characters, on at most 1,000 rows. On the labelled sets of
    this project it is within 1.5 points of logistic regression on the same n-grams, and needs no
    library.
    """
    if not texts:
        return None
    counts = Counter(gold)
    label, most = min(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    enough = len(texts) >= _FEWEST and len(counts) > 1
    step = -(-len(texts) // _MOST_ROWS)
    ngrams = _cross_validated(texts[::step], gold[::step]) if enough else None
    return Baseline(len(texts), label, most / len(texts), ngrams)


def _cross_validated(texts: Sequence[str], gold: Sequence[str]) -> float:
    labels = sorted(set(gold))
    folds = folds_of(texts, [labels.index(label) for label in gold])
    counted = [_ngrams(text) for text in texts]
    right = 0
    for fold in range(FOLDS):
        known = [row for row, other in enumerate(folds) if other != fold]
        model = _NaiveBayes([counted[row] for row in known], [gold[row] for row in known])
        judged = (row for row, own in enumerate(folds) if own == fold)
        right += sum(model.label(counted[row]) == gold[row] for row in judged)
    return right / len(texts)


def _ngrams(text: str) -> Counter[str]:
    """Return the counts of n-grams within words, each with a space before and after it."""
    words = (f" {word} " for word in text[:_CHARACTERS].casefold().split())
    return Counter(
        word[start : start + size]
        for word in words
        for size in range(1, _LONGEST + 1)
        for start in range(len(word) - size + 1)
    )


class _NaiveBayes:
    """Log-likelihoods of each n-gram by label, and the labels' own shares."""

    def __init__(self, rows: Sequence[Counter[str]], gold: Sequence[str]) -> None:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for row, label in zip(rows, gold, strict=True):
            counts[label].update(row)
        self._labels, shares = list(counts), Counter(gold)
        self._shares = [math.log(shares[label]) for label in self._labels]

        # An n-gram that a label lacks counts as `_SMOOTHING`, which is a factor of all labels.
        self._evidence: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, label in enumerate(self._labels):
            for ngram, count in counts[label].items():
                self._evidence[ngram].append((place, math.log1p(count / _SMOOTHING)))
        vocabulary = len(self._evidence) or 1
        self._totals = [
            math.log(counts[label].total() + _SMOOTHING * vocabulary) for label in self._labels
        ]

    def label(self, row: Counter[str]) -> str | None:
        """Return the likeliest label of a text; None if nothing was learned."""
        size = row.total()
        scores = [
            share - size * total for share, total in zip(self._shares, self._totals, strict=True)
        ]
        for ngram, times in row.items():
            for place, evidence in self._evidence.get(ngram, ()):
                scores[place] += times * evidence
        if not scores:
            return None
        return self._labels[scores.index(max(scores))]
