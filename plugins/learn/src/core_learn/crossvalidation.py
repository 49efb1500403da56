"""Cross-validation, which chooses layer, kind of classifier head, strength and scale.

Texts are dealt to folds by class, in input order, so that a choice depends only on the rows, not on
a seed. Each row is evaluated once, by heads that have not seen its text: rows with equal texts are
in the same fold.

Shapes: n rows, L layers, H features, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core_learn.errors import TrainingDataError
from core_learn.heads import KINDS, Array, Classes, log_probabilities

MOST_FOLDS = 8
_SCALES = np.geomspace(0.05, 200.0, 60)  # of scores, before they are made probabilities
_FREE = 0.02  # of accuracy: what an early exit may cost unseen


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one kind of head with one strength on one layer, on rows that it had not seen.

    ``accuracy`` is of those rows; ``loss`` their mean negative log-probability, at the ``scale``
    that minimises it (`best_scale`). The best of several trials is optimistic: some of its lead is
    luck on these rows.
    """

    layer: int
    kind: str
    strength: float
    accuracy: float
    loss: float
    scale: float


def folds(classes: Classes, texts: Classes, most: int = MOST_FOLDS) -> list[Classes]:
    """Divide the rows, by their numbers; ``texts`` numbers the text of each row.

    Rows with equal texts are in the same fold, and each class has a text in every fold: a text
    counts for the class that most of its rows have. Empty if a class has a single text: without
    it, nothing could be learned of the class.
    """
    counts = np.zeros((texts.max() + 1, classes.max() + 1), int)
    np.add.at(counts, (texts, classes), 1)
    main = counts.argmax(axis=1)  # of each text
    sizes = np.bincount(main, minlength=counts.shape[1])
    count = min(most, int(sizes.min()))
    if count < 2:
        return []
    place = np.empty_like(main)
    for label in range(len(sizes)):
        own = np.flatnonzero(main == label)
        place[own] = np.arange(len(own)) % count
    return [np.flatnonzero(place[texts] == fold) for fold in range(count)]


def trials(
    states: Mapping[int, Array], classes: Classes, texts: Classes, count: int, kinds: Sequence[str]
) -> Iterator[Trial]:
    """Yield every trial; ``states`` are the rows of each layer, [n, H].

    Heads that cannot be fitted on a layer (for example, if all rows are equal) are omitted.
    """
    left_out = folds(classes, texts)
    for layer, rows in states.items():
        for kind in kinds if left_out else ():
            _, strengths = KINDS[kind]
            try:
                scores = unseen_scores(rows, classes, count, kind, left_out)
            except TrainingDataError:
                continue
            for strength, row_scores in zip(strengths, scores, strict=True):
                accuracy = float((row_scores.argmax(axis=1) == classes).mean())
                loss, scale = best_scale(row_scores, classes)
                yield Trial(layer, kind, strength, accuracy, loss, scale)


def unseen_scores(
    rows: Array, classes: Classes, count: int, kind: str, left_out: Sequence[Classes]
) -> Array:
    """Return each row's scores from the heads that have not seen it: [strengths, n, K]."""
    path, strengths = KINDS[kind]
    scores = np.empty((len(strengths), len(rows), count))
    for fold in left_out:
        seen = np.setdiff1d(np.arange(len(rows)), fold)
        for place, head in enumerate(path(rows[seen], classes[seen], count, strengths)):
            scores[place, fold] = head.scores(rows[fold])
    return scores


def best_scale(scores: Array, classes: Classes) -> tuple[float, float]:
    """Return the lowest mean loss over scales of the scores, and that scale.

    A row counts for its class except for one part in n + 2, which all classes share (after Platt,
    1999): a few rows that are all correct must not make every probability 1.
    """
    rows, count = scores.shape
    doubted = 1.0 / (rows + 2)
    targets = (1.0 - doubted) * np.eye(count)[classes] + doubted / count
    losses = [
        -float((targets * log_probabilities(scores, scale)).sum(axis=1).mean()) for scale in _SCALES
    ]
    best = int(np.argmin(losses))
    return losses[best], float(_SCALES[best])


def best(trials: Sequence[Trial], texts: int) -> Trial:
    """Return the best trial on the highest layer, or one elsewhere that is significantly better.

    The more layers are tried on a few rows, the more of them are correct by luck: with 16 rows, the
    best of all layers was wrong three times as often on new rows as the last layer was.
    """
    highest = max(trial.layer for trial in trials)
    known = max((trial for trial in trials if trial.layer == highest), key=_rank)
    other = max(trials, key=_rank)
    return other if other.accuracy > known.accuracy + doubt(known.accuracy, texts) else known


def early_exit(trials: Sequence[Trial], texts: int) -> Trial | None:
    """Return the trial on the lowest layer with as many correct rows as the best.

    None if that is `best`'s, and if there are too few texts to show that the exit costs no
    accuracy.
    """
    top = best(trials, texts)
    if doubt(top.accuracy, texts) > _FREE:
        return None
    enough = [trial for trial in trials if trial.accuracy >= top.accuracy]
    lowest = min(trial.layer for trial in enough)
    exits = [trial for trial in enough if trial.layer == lowest]
    return max(exits, key=_rank) if lowest < top.layer else None


def doubt(accuracy: float, rows: int) -> float:
    """Return two standard errors of an accuracy; never 0, as one more row counts as wrong."""
    share = (accuracy * rows + 1) / (rows + 2)
    return 2.0 * math.sqrt(share * (1.0 - share) / rows)


def _rank(trial: Trial) -> tuple[float, float]:
    """Return a trial's rank, higher is better: more correct rows, then a lower loss."""
    return trial.accuracy, -trial.loss
