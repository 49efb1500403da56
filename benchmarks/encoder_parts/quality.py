"""Accuracy of label scores, with and without a prior, and of heads on vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.label_parts.answers import States
from benchmarks.label_parts.levels import DRAWS, head_figures
from benchmarks.label_parts.sets import FITTING, LabelledSet
from core_tasks.calibration import quality

Array = np.ndarray[Any, Any]
Figures = dict[str, Any]

SCALE = 20.0  # of the cosine
CLEAR = 0.02  # labels are compared where the best is ahead of the second by more
SENTENCES = (  # of which the first is the default
    "This text is about {label}.",
    "This is about {label}.",
    "This message is about {label}.",
    "This is a text about {label}.",
    "The following text is about {label}.",
    "A text about {label}.",
    "A message about {label}.",
    "This is a {label} text.",
    "The topic is {label}.",
    "The topic of this text is {label}.",
    "The subject is {label}.",
    "The text expresses {label}.",
    "This text is {label}.",
    "This is {label}.",
    "Category: {label}",
    "{label}",
)
SPECIAL = (
    "This is a {label} review.",
    "A customer's message about {label}.",
)  # name a kind of text
_SEED = 0


def accuracies(rows: Array, of: LabelledSet) -> Figures:
    """Return the accuracy of rows of label scores on the evaluation rows, and on all rows.

    ``prior`` is the mean over draws of as many unlabelled rows as the levels are fitted on, from
    all rows at random: the mean score of each label is subtracted. ``prior_unseen`` is measured on
    the rows that were not drawn.
    """
    gold = np.array(of.gold)
    right = rows.argmax(1) == gold
    seen, unseen = [], []
    for drawn in prior_draws(len(gold)):
        adjusted = (rows - rows[drawn].mean(0)).argmax(1) == gold
        seen.append(float(adjusted[of.evaluation].mean()))
        unseen.append(float(np.delete(adjusted, drawn).mean()))
    evaluated = rows[of.evaluation].tolist()
    return {
        "plain": float(right[of.evaluation].mean()),
        "plain_all": float(right.mean()),
        "prior": fmean(seen),
        "prior_unseen": fmean(unseen),
        "calibration_error": quality(evaluated, gold[of.evaluation].tolist()).calibration_error,
    }


def prior_draws(rows: int) -> Iterator[Array]:
    """Yield the row numbers of each draw."""
    draw = np.random.default_rng(_SEED)
    for _ in range(DRAWS):
        yield draw.permutation(rows)[:FITTING]


def scores(vectors: Array, sentences: Array) -> Array:
    """Return log-probabilities: the log-softmax of scaled cosines."""
    products: Array = SCALE * (vectors @ sentences.T)
    rows: Array = products - np.logaddexp.reduce(products, axis=1, keepdims=True)
    return rows


def heads(vectors: Array, of: LabelledSet) -> Figures:
    """Return the mean accuracy of heads on vectors by the labelled rows of each label."""
    figures = head_figures(States({1: vectors}, 1), of)
    return {name.rpartition(" ")[2]: levels["accuracy"] for name, levels in figures.items()}


def cosines(vectors: Mapping[str, Array], reference: Mapping[str, Array]) -> Figures:
    """Return the least and the mean cosine to the reference's vectors, over all sets."""
    each = np.concatenate([(vectors[name] * reference[name]).sum(1) for name in reference])
    return {"least": float(each.min()), "mean": float(each.mean())}


def agreement(rows: Mapping[str, Array], reference: Mapping[str, Array]) -> Figures:
    """Return the share of labels equal to the reference's where those are clear."""
    same = compared = 0
    for name, own in reference.items():
        shares = np.sort(np.exp(own), axis=1)
        clear = shares[:, -1] - shares[:, -2] > CLEAR
        same += int((rows[name].argmax(1) == own.argmax(1))[clear].sum())
        compared += int(clear.sum())
    return {"same": same, "compared": compared}


def best_scale(vectors: Array, sentences: Array, of: LabelledSet) -> float:
    """Return the scale of the cosine with the best likelihood of the gold labels."""
    products = vectors @ sentences.T
    gold = np.array(of.gold)

    def nll(scale: float) -> float:
        rows = scale * products
        rows = rows - np.logaddexp.reduce(rows, axis=1, keepdims=True)
        return float(-rows[np.arange(len(gold)), gold].mean())

    return min(map(float, range(2, 61)), key=nll)


def means(by_set: Sequence[Figures], name: str) -> float:
    """Return the mean of a figure over sets."""
    return fmean(float(figures[name]) for figures in by_set)
