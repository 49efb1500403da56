"""Every level of every cell, on the rows held out; a cell is a subject, a set and a template."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import core
from benchmarks.label_parts import asking
from benchmarks.label_parts.asking import Said, States
from benchmarks.label_parts.sets import LabelledSet
from core.calibration import (
    Adjustment,
    batch_prior,
    content_free_prior,
    fit_isotonic,
    fit_temperature,
    pmi_prior,
    quality,
)
from core.labels import softmax
from core_learn import FewShot
from core_learn.fewshot import PROBES

Array = np.ndarray[Any, Any]
Figures = dict[str, Any]

RAW, DEFAULT = "raw", "L0 content-free"
SIZES, DRAWS = (4, 8, 16), 20  # rows of each label that a head learns from
_BINS, _RESAMPLES, _SEED = 15, 2000, 0


def all_figures(
    cache: Path, models: Sequence[str], backends: Sequence[str], sets: Sequence[LabelledSet]
) -> Figures:
    """The figures of all cells that were asked, and of all heads."""
    cells, heads = [], []
    for model in models:
        for backend in backends:
            for of in sets:
                subject = {"model": model, "backend": backend, "set": of.name}
                for template in of.templates:
                    said = asking.said(cache, model, backend, of, template)
                    cells.append({**subject, "template": template, **cell(said, of)})
                found = head_figures(asking.states(cache, model, backend, of), of)
                heads.append({**subject, "levels": found})
    return {"cells": cells, "heads": heads}


def cell(said: Said, of: LabelledSet) -> Figures:
    """The quality of each level on the held-out rows, and the default's beside raw."""
    gold = [of.gold[row] for row in of.held]
    held = [said.rows[row] for row in of.held]
    shares = {
        name: np.array([softmax(adjust(row)) for row in held])
        for name, adjust in adjustments(said, of).items()
    }
    return {
        "label_mass": said.label_mass,
        "rows_per_second": len(said.rows) / said.seconds,
        "levels": {name: told(each, gold) for name, each in shares.items()},
        "default_beside_raw": beside(shares[DEFAULT], shares[RAW], np.array(gold)),
    }


def adjustments(said: Said, of: LabelledSet) -> dict[str, Callable[[Sequence[float]], list[float]]]:
    """What each level does to a row; all is fitted on the fitting rows alone."""
    rows, gold = [said.rows[n] for n in of.fitting], [of.gold[n] for n in of.fitting]
    default, none = content_free_prior(said.content_free, named=said.named), Adjustment()
    return {
        RAW: none,
        DEFAULT: default,
        "L0 batch": batch_prior(rows),
        "L0 pmi": pmi_prior(said.without_text),
        "L1 temperature": fit_temperature(rows, gold, none),
        "L1 content-free+temperature": fit_temperature(rows, gold, default),
        "L1 isotonic": fit_isotonic(rows, gold, none),
        "L1 content-free+isotonic": fit_isotonic(rows, gold, default),
    }


def told(shares: Array, gold: Sequence[int]) -> Figures:
    """Accuracy, calibration error with its interval, Brier's score and the likelihood."""
    with np.errstate(divide="ignore"):
        found = quality(np.log(shares).tolist(), gold)
    low, high = np.percentile(resampled_ece(shares, np.array(gold)), (2.5, 97.5))
    return {
        "accuracy": found.accuracy,
        "ece": found.expected_calibration_error,
        "ece_interval": [float(low), float(high)],
        "brier": found.brier,
        "nll": found.nll,
    }


def beside(one: Array, other: Array, gold: Array) -> Figures:
    """How much more accurate the one is, and how much larger its calibration error, resampled.

    The resamples are of the same rows for both, so that what both find hard does not count.
    """
    right = (one.argmax(1) == gold).astype(float) - (other.argmax(1) == gold)
    accuracy = right[_resamples(len(gold))].mean(1)
    ece = resampled_ece(one, gold) - resampled_ece(other, gold)
    return {
        "accuracy": float(right.mean()),
        "accuracy_interval": np.percentile(accuracy, (2.5, 97.5)).tolist(),
        "ece": ece_of(one, gold) - ece_of(other, gold),
        "ece_interval": np.percentile(ece, (2.5, 97.5)).tolist(),
    }


def ece_of(shares: Array, gold: Array) -> float:
    """The calibration error, as `core.agreement` has it."""
    bins, gaps = _gaps(shares, gold)
    return float(np.abs(np.bincount(bins, gaps, _BINS)).sum() / len(gold))


def resampled_ece(shares: Array, gold: Array) -> Array:
    """The calibration error of so many rows drawn with replacement, again and again."""
    bins, gaps = _gaps(shares, gold)
    found = [np.bincount(bins[rows], gaps[rows], _BINS) for rows in _resamples(len(gold))]
    errors: Array = np.abs(found).sum(1) / len(gold)
    return errors


def _gaps(shares: Array, gold: Array) -> tuple[Array, Array]:
    """The bin of each row's best probability, and how far that is from being right."""
    best = shares.max(1)
    bins = np.clip(np.ceil(best * _BINS).astype(int) - 1, 0, _BINS - 1)
    return bins, (shares.argmax(1) == gold) - best


def _resamples(rows: int) -> Array:
    return np.random.default_rng(_SEED).integers(0, rows, (_RESAMPLES, rows))


# ---------------------------------------------------------------------------- heads


def head_figures(states: States, of: LabelledSet) -> Figures:
    """The mean quality of heads that learned from few rows, drawn from the fitting ones."""
    found = {}
    for size in SIZES:
        each = [_head(states, of, rows) for rows in draws(of, size)]
        found[f"L2 of {size}"] = {
            name: float(np.mean([figures[name] for figures in each]))
            for name in ("accuracy", "ece", "brier", "nll")
        }
    return found


def draws(of: LabelledSet, size: int) -> Iterator[list[int]]:
    """Fitting rows, so many of each label, drawn again and again."""
    draw = np.random.default_rng(_SEED)
    by_label = [[n for n in of.fitting if of.gold[n] == label] for label in range(len(of.labels))]
    for _ in range(DRAWS):
        yield [int(row) for rows in by_label for row in draw.permutation(rows)[:size]]


def _head(states: States, of: LabelledSet, rows: Sequence[int]) -> Figures:
    few = FewShot(Stored(states, of.texts))
    few.fit([of.texts[n] for n in rows], [of.labels[of.gold[n]] for n in rows], of.labels)
    shares = few.predict_proba([of.texts[n] for n in of.held])
    gold = np.array([of.gold[n] for n in of.held])
    with np.errstate(divide="ignore"):
        found = quality(np.log(shares).tolist(), gold.tolist())
    return {
        "accuracy": found.accuracy,
        "ece": found.expected_calibration_error,
        "brier": found.brier,
        "nll": found.nll,
    }


class Stored:
    """A model that shows the states that were kept, and has nothing else."""

    def __init__(self, states: States, texts: Sequence[str]) -> None:
        self._layers = states.layers
        self._place = {text: place for place, text in enumerate([*texts, *PROBES])}
        size = next(iter(states.layers.values())).shape[1]
        self.info = SimpleNamespace(num_layers=states.num_layers, hidden_size=size)

    def hidden_states(
        self, prompts: Sequence[str], config: object = None, /, *, layers: Sequence[int] = (-1,)
    ) -> list[core.HiddenResult]:
        """The kept states. Raises `UnsupportedOptionError` for a layer that was not."""
        last = self.info.num_layers
        numbers = tuple(layer % (last + 1) for layer in layers)
        if not set(numbers) <= self._layers.keys():
            raise core.UnsupportedOptionError("layers", "the kept states")
        rows = [self._place[prompt] for prompt in prompts]
        found = np.stack([self._layers[number][rows] for number in numbers], axis=1)
        flat = np.ascontiguousarray(found, np.float32).reshape(len(rows), -1)
        return [core.HiddenResult(numbers, _array(row)) for row in flat]


def _array(row: Array) -> Any:
    from array import array

    return array("f", row.tobytes())
