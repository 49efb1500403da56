"""From states and classes to a classifier head, and to its accuracy on unseen texts.

The best of many trials is optimistic on the rows that it was chosen by. So its accuracy comes from
nested cross-validation (S. Varma, R. Simon, Bias in error estimation when using cross-validation
for model selection, BMC Bioinformatics 7:91, 2006): layer, kind, strength and scale are chosen
again without each fold, and evaluated on it.

Shapes: n rows, H features, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core_learn.crossvalidation import Trial, best, early_exit, folds, trials
from core_learn.errors import TrainingDataError
from core_learn.heads import KINDS, Array, Classes, Linear, log_probabilities
from core_tasks.folds import FOLDS, text_key

_DEFAULT = "ridge", 1.0, 10.0  # kind, strength and scale if no fold can be left out


@dataclass(frozen=True, slots=True)
class Examples:
    """The rows of each layer, [n, H], with the numbers of their classes and of their texts."""

    states: Mapping[int, Array]
    classes: Classes
    texts: Classes
    count: int  # of classes

    @classmethod
    def of(
        cls, states: Mapping[int, Array], texts: Sequence[str], classes: Classes, count: int
    ) -> Examples:
        """Make examples of rows in the given order; equal texts have the same number."""
        keys = [text_key(text) for text in texts]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return cls(states, classes, np.array([numbers[key] for key in keys], np.intp), count)

    def some(self, rows: Classes) -> Examples:
        """Return these rows, by their numbers."""
        _, texts = np.unique(self.texts[rows], return_inverse=True)
        states = {layer: array[rows] for layer, array in self.states.items()}
        return Examples(states, self.classes[rows], texts, self.count)


@dataclass(frozen=True, slots=True)
class Choice:
    """The trials to make, and whether a lower layer may do."""

    kinds: Sequence[str]
    early_exit: bool


@dataclass(frozen=True, slots=True)
class Learned:
    """A head, the trial that it comes from, and all trials."""

    linear: Linear
    trial: Trial
    trials: list[Trial]


def learn(examples: Examples, choice: Choice) -> Learned:
    """Choose a head by cross-validation and fit it on all rows."""
    states, classes, count = examples.states, examples.classes, examples.count
    tried = list(trials(states, classes, examples.texts, count, choice.kinds))
    if tried:
        different = int(examples.texts.max()) + 1
        sooner = early_exit(tried, different) if choice.early_exit else None
        chosen = sooner or best(tried, different)
    else:  # without two texts of each class nothing can be left out, and nothing be chosen
        kind, strength, scale = _DEFAULT
        chosen = Trial(max(states), kind, strength, math.nan, math.nan, scale)
    path, _ = KINDS[chosen.kind]
    [linear] = path(states[chosen.layer], classes, count, [chosen.strength])
    return Learned(linear, chosen, tried)


def unseen(examples: Examples, choice: Choice, left_out: Sequence[Classes]) -> Array:
    """Return each row's probabilities from a head chosen and made without its fold: [n, K].

    Raises `TrainingDataError` if the other folds lack a class, or all of their rows are equal.
    """
    probabilities = np.empty((len(examples.classes), examples.count))
    for fold in left_out:
        rest = np.setdiff1d(np.arange(len(probabilities)), fold)
        if len(np.unique(examples.classes[rest])) < examples.count:
            raise TrainingDataError(
                "A label has all of its texts in one fold, so it cannot be learned from the "
                "others. Use more texts, or fewer folds."
            )
        learned = learn(examples.some(rest), choice)
        scores = learned.linear.scores(examples.states[learned.trial.layer][fold])
        probabilities[fold] = np.exp(log_probabilities(scores, learned.trial.scale))
    return probabilities


def nested_accuracy(examples: Examples, choice: Choice) -> float | None:
    """Return the accuracy by `unseen`; None if no text can be left out.

    That is if a class has a single text, or if the other rows would all be equal.
    """
    left_out = folds(examples.classes, examples.texts, FOLDS)
    if not left_out:
        return None
    try:
        shares = unseen(examples, choice, left_out)
    except TrainingDataError:
        return None
    return float((shares.argmax(axis=1) == examples.classes).mean())
