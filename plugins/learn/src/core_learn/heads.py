"""Linear classifier heads in closed form: all regularisation strengths from one decomposition.

*Ridge*: least squares on one target for each class, 1 for its rows and 0 for the others; the
squared weights are penalised with ``strength`` times the mean square of a feature, summed over the
rows (Hoerl and Kennard, 1970). *Shrunk LDA*: Gaussian classes with one covariance, of which a
share, ``strength`` from 0 to 1, is replaced by its mean variance in every direction (Friedman,
1989). Both invert a matrix of H by H features, through one of n by n if there are fewer rows, so
that a few rows of many features cost little.

Shapes: n rows, H features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core_learn.errors import TrainingDataError

Array = npt.NDArray[np.float64]
Classes = npt.NDArray[np.intp]  # of each row, its class's number

_NOTHING = 1e-12  # what is less, of a singular value, is rounding


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map from a row to its scores: ``weights`` [H, K] and ``bias`` [K]."""

    weights: Array
    bias: Array

    def scores(self, rows: Array) -> Array:
        """Return the score of each class: [n, K]."""
        return rows @ self.weights + self.bias


class Squares:
    """The matrix ``rows.T @ rows`` [H, H], ready to be scaled, shifted and inverted.

    It is decomposed once, in its smaller form: with fewer rows than features, ``rows @ rows.T``
    [n, n] has the same eigenvalues except for zeros.
    """

    def __init__(self, rows: Array) -> None:
        """Decompose the matrix. Raises `TrainingDataError` if all rows are equal."""
        self.size = rows.shape[1]
        self.trace = float((rows**2).sum())
        self._rows = rows if len(rows) < self.size else None
        small = rows.T @ rows if self._rows is None else rows @ rows.T
        values, self._vectors = np.linalg.eigh(small)
        self._values = np.maximum(values, 0.0)
        if self._values.max(initial=0.0) <= _NOTHING**2:
            raise TrainingDataError(
                "All rows have the same features, so their classes cannot be distinguished. Use "
                "texts that differ, or a template that ends after the text."
            )

    def solved(self, targets: Array, pairs: Iterable[tuple[float, float]]) -> Iterator[Array]:
        """Yield ``(scale * rows.T @ rows + shift * 1)^-1 @ targets`` [H, K] for each pair.

        With fewer rows than features, Woodbury's identity inverts the small form.
        """
        if self._rows is None:
            inside = self._vectors.T @ targets
            for scale, shift in pairs:
                yield self._vectors @ (inside / (scale * self._values + shift)[:, None])
            return
        inside = self._vectors.T @ (self._rows @ targets)
        for scale, shift in pairs:
            parts = (scale / (scale * self._values + shift))[:, None] * inside
            yield (targets - self._rows.T @ (self._vectors @ parts)) / shift


def ridge(
    rows: Array, classes: Classes, count: int, strengths: Sequence[float]
) -> Iterator[Linear]:
    """Yield the ridge classifier of each strength, for ``count`` classes."""
    targets = np.eye(count)[classes]  # [n, K]
    middle, mean = rows.mean(axis=0), targets.mean(axis=0)
    centred = rows - middle
    squares = Squares(centred)
    unit = squares.trace / squares.size

    pairs = [(1.0, strength * unit) for strength in strengths]
    for weights in squares.solved(centred.T @ (targets - mean), pairs):
        yield Linear(weights, mean - middle @ weights)


def lda(rows: Array, classes: Classes, count: int, strengths: Sequence[float]) -> Iterator[Linear]:
    """Yield the LDA classifier of each strength; a class's prior is its share of the rows."""
    sizes = np.bincount(classes, minlength=count)
    means = np.array([rows[classes == place].mean(axis=0) for place in range(count)])  # [K, H]
    squares = Squares((rows - means[classes]) / np.sqrt(len(rows)))  # the covariance within them
    unit = squares.trace / squares.size

    pairs = [(1.0 - strength, strength * unit) for strength in strengths]
    for weights in squares.solved(means.T, pairs):
        bias = np.log(sizes / sizes.sum()) - 0.5 * (means.T * weights).sum(axis=0)
        yield Linear(weights, bias)


Path = Callable[[Array, Classes, int, Sequence[float]], Iterator[Linear]]
KINDS: Mapping[str, tuple[Path, Sequence[float]]] = {
    "ridge": (ridge, tuple(10.0**power for power in range(-2, 5))),
    "lda": (lda, (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)),
}
"""The heads by name, each with the strengths to try."""


def log_probabilities(scores: Array, scale: float = 1.0) -> Array:
    """Return the logarithm of the softmax of ``scale`` times the scores: [n, K]."""
    scaled = scale * (scores - scores.max(axis=1, keepdims=True))
    logs: Array = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return logs
