"""Metrics of every level and cell on the evaluation rows; a cell is a subject, set and template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.label_parts import answers
from benchmarks.label_parts.answers import Replies, States
from benchmarks.label_parts.sets import LabelledSet
from core.kit.labels import softmax
from core_learn.heads import KINDS, log_probabilities
from core_learn.learning import Choice, Examples, learn
from core_tasks.calibration import (
    Adjustment,
    batch_prior,
    content_free_prior,
    fit_isotonic,
    fit_temperature,
    pmi_prior,
    quality,
)

Array = np.ndarray[Any, Any]
Figures = dict[str, Any]

RAW, DEFAULT = "raw", "L0 content-free"
SIZES, DRAWS = (4, 8, 16), 20  # rows of each label that a head learns from
_BINS, _RESAMPLES, _SEED = 15, 2000, 0


def all_figures(
    cache: Path, models: Sequence[str], backends: Sequence[str], sets: Sequence[LabelledSet]
) -> Figures:
    """Return the figures of all cells, and of all heads."""
    cells, heads = [], []
    for model in models:
        for backend in backends:
            for of in sets:
                subject = {"model": model, "backend": backend, "set": of.name}
                for template in of.templates:
                    replies = answers.replies(cache, model, backend, of, template)
                    cells.append({**subject, "template": template, **cell(replies, of)})
                by_size = head_figures(answers.states(cache, model, backend, of), of)
                heads.append({**subject, "levels": by_size})
    return {"cells": cells, "heads": heads}


def cell(replies: Replies, of: LabelledSet) -> Figures:
    """Return the quality of each level on the evaluation rows, and the default's against raw."""
    gold = [of.gold[row] for row in of.evaluation]
    evaluated = [replies.rows[row] for row in of.evaluation]
    shares = {
        name: np.array([softmax(adjust(row)) for row in evaluated])
        for name, adjust in adjustments(replies, of).items()
    }
    return {
        "label_mass": replies.label_mass,
        "rows_per_second": len(replies.rows) / replies.seconds,
        "levels": {name: metrics_of(probabilities, gold) for name, probabilities in shares.items()},
        "default_beside_raw": beside(shares[DEFAULT], shares[RAW], np.array(gold)),
    }


def adjustments(
    replies: Replies, of: LabelledSet
) -> dict[str, Callable[[Sequence[float]], list[float]]]:
    """Return the adjustment of each level; all are fitted on the fitting rows alone."""
    rows, gold = [replies.rows[n] for n in of.fitting], [of.gold[n] for n in of.fitting]
    default, none = content_free_prior(replies.content_free, named=replies.named), Adjustment()
    return {
        RAW: none,
        DEFAULT: default,
        "L0 batch": batch_prior(rows),
        "L0 pmi": pmi_prior(replies.without_text),
        "L1 temperature": fit_temperature(rows, gold, none),
        "L1 content-free+temperature": fit_temperature(rows, gold, default),
        "L1 isotonic": fit_isotonic(rows, gold, none),
        "L1 content-free+isotonic": fit_isotonic(rows, gold, default),
    }


def metrics_of(shares: Array, gold: Sequence[int]) -> Figures:
    """Accuracy, calibration error with its interval, Brier's score and the likelihood."""
    with np.errstate(divide="ignore"):
        metrics = quality(np.log(shares).tolist(), gold)
    return {
        "accuracy": metrics.accuracy,
        "calibration_error": metrics.calibration_error,
        "calibration_error_interval": [*metrics.calibration_error_interval],
        "brier": metrics.brier,
        "nll": metrics.nll,
    }


def beside(one: Array, other: Array, gold: Array) -> Figures:
    """Return the differences in accuracy and squared calibration error, with intervals.

    The resamples are of the same rows for both, so that what both find hard does not count. The
    interval of the error is a basic one: a resample's rows stand to all rows as these stand to all
    texts, so that its distance from their plug-in error is that of the estimate from the true one.
    """
    right = (one.argmax(1) == gold).astype(float) - (other.argmax(1) == gold)
    accuracy = right[_resamples(len(gold))].mean(1)
    first, second = Gaps.of(one, gold), Gaps.of(other, gold)
    apart = first.squared() - second.squared()
    off = first.resampled() - second.resampled() - (first.plug_in() - second.plug_in())
    return {
        "accuracy": float(right.mean()),
        "accuracy_interval": np.percentile(accuracy, (2.5, 97.5)).tolist(),
        "squared_calibration_error": apart,
        "squared_calibration_error_interval": (apart - np.percentile(off, (97.5, 2.5))).tolist(),
    }


@dataclass(frozen=True, slots=True)
class Gaps:
    """The bin of each row, of equally many, and how far its best probability is from right."""

    bins: Array
    gaps: Array

    @classmethod
    def of(cls, shares: Array, gold: Array) -> Gaps:
        """Rank the rows by their best probability, and divide them."""
        best, rows = shares.max(1), len(gold)
        rank = np.argsort(np.argsort(best, kind="stable"), kind="stable")
        bins = np.floor(min(_BINS, rows // 2) * (rank + 0.5) / rows).astype(int)
        return cls(bins, (shares.argmax(1) == gold) - best)

    def squared(self) -> float:
        """The squared calibration error without bias, as `core_tasks.agreement` has it."""
        return float(self._estimates(np.arange(len(self.gaps))[None])[0])

    def resampled(self) -> Array:
        """Return the same of each resample, drawn with replacement."""
        return self._estimates(_resamples(len(self.gaps)))

    def plug_in(self) -> float:
        """The mean squared gap of the bins as it is, with what chance adds."""
        sums, counts = np.bincount(self.bins, self.gaps), np.bincount(self.bins)
        return float((sums**2 / counts).sum() / len(self.gaps))

    def _estimates(self, rows: Array) -> Array:
        """The estimate from each line of row numbers."""
        cells = self.bins[rows] + _BINS * np.arange(len(rows))[:, None]
        counts, sums, squares = (
            np.bincount(cells.ravel(), weights, len(rows) * _BINS).reshape(-1, _BINS)
            for weights in (None, self.gaps[rows].ravel(), self.gaps[rows].ravel() ** 2)
        )
        many = np.maximum(counts, 2)  # of a single row no variance is known
        mean = sums / np.maximum(counts, 1)
        variance = np.where(counts > 1, (squares - counts * mean**2) / (many * (many - 1)), 0.0)
        estimates: Array = (counts * (mean**2 - variance)).sum(1) / rows.shape[1]
        return estimates


def _resamples(rows: int) -> Array:
    return np.random.default_rng(_SEED).integers(0, rows, (_RESAMPLES, rows))


# ---------------------------------------------------------------------------- heads


def head_figures(states: States, of: LabelledSet) -> Figures:
    """The mean quality of heads that learned from few rows, drawn from the fitting ones."""
    figures_of = {}
    for size in SIZES:
        runs = [_head(states, of, rows) for rows in draws(of, size)]
        figures_of[f"L2 of {size}"] = {
            name: float(np.mean([figures[name] for figures in runs]))
            for name in ("accuracy", "calibration_error", "brier", "nll")
        }
    return figures_of


def draws(of: LabelledSet, size: int) -> Iterator[list[int]]:
    """Yield repeated draws of fitting rows, ``size`` of each label."""
    draw = np.random.default_rng(_SEED)
    by_label = [[n for n in of.fitting if of.gold[n] == label] for label in range(len(of.labels))]
    for _ in range(DRAWS):
        yield [int(row) for rows in by_label for row in draw.permutation(rows)[:size]]


def _head(states: States, of: LabelledSet, rows: Sequence[int]) -> Figures:
    # In the order of the texts, as `FewShot` has it, which would judge the head by folds as well.
    order = sorted(rows, key=of.texts.__getitem__)
    seen = {layer: np.asarray(array[order], np.float64) for layer, array in states.layers.items()}
    texts, gold = [of.texts[n] for n in order], np.array([of.gold[n] for n in order])
    learned = learn(Examples.of(seen, texts, gold, len(of.labels)), Choice(tuple(KINDS), False))
    judged = np.asarray(states.layers[learned.trial.layer][of.evaluation], np.float64)
    shares = np.exp(log_probabilities(learned.linear.scores(judged), learned.trial.scale))
    return metrics_of(shares, [of.gold[n] for n in of.evaluation])
