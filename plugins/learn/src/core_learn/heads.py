"""Linear heads in closed form: every strength of regularisation from one decomposition.

*Ridge*: least squares on one target for each class, 1 for its rows and 0 for the others', with
``strength`` times the mean square of a feature, summed over the rows, in front of the squared
weights (Hoerl and Kennard, 1970). *Shrunk LDA*: Gaussian classes with one covariance, of which a
share, ``strength`` from 0 to 1, is replaced by its mean variance in every direction (Friedman,
1989). Both read the rows through the singular values of a matrix of n rows and H features, so that
a few rows of many features cost little.

Shapes: n rows, H features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core_learn.errors import TrainingDataError

Array = npt.NDArray[np.float64]
Classes = npt.NDArray[np.intp]  # of each row, its class's number

_NOTHING = 1e-12  # of the greatest singular value: what is less is rounding


@dataclass(frozen=True, slots=True)
class Linear:
    """What a row's scores are made with: ``weights`` [H, K] and ``bias`` [K]."""

    weights: Array
    bias: Array

    def scores(self, rows: Array) -> Array:
        """The score of each class: [n, K]."""
        return rows @ self.weights + self.bias


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The singular values of rows [n, H], and what they are the values of; zero ones are left out.

    ``left`` [n, R], ``values`` [R], ``right`` [R, H].
    """

    left: Array
    values: Array
    right: Array

    @classmethod
    def of(cls, rows: Array) -> Spectrum:
        """Decompose rows. Raises `TrainingDataError` for rows that are all alike."""
        left, values, right = np.linalg.svd(rows, full_matrices=False)
        some = values > _NOTHING * max(1.0, values.max(initial=0.0))
        if not some.any():
            raise TrainingDataError(
                "All rows have the same features, so that nothing tells their classes apart. Give "
                "texts that differ, or a template that ends behind the text."
            )
        return cls(left[:, some], values[some], right[some])


def ridge(
    rows: Array, classes: Classes, count: int, strengths: Sequence[float]
) -> Iterator[Linear]:
    """Yield the ridge of each strength, for ``count`` classes."""
    targets = np.eye(count)[classes]  # [n, K]
    middle, mean = rows.mean(axis=0), targets.mean(axis=0)
    spectrum = Spectrum.of(rows - middle)
    projected = spectrum.left.T @ (targets - mean)  # [R, K]
    unit = float((spectrum.values**2).sum()) / rows.shape[1]

    for strength in strengths:
        shrunk = spectrum.values / (spectrum.values**2 + strength * unit)  # [R]
        weights = spectrum.right.T @ (shrunk[:, None] * projected)
        yield Linear(weights, mean - middle @ weights)


def lda(rows: Array, classes: Classes, count: int, strengths: Sequence[float]) -> Iterator[Linear]:
    """Yield the discriminant of each strength; the share of a class's rows is its prior."""
    sizes = np.bincount(classes, minlength=count)
    means = np.array([rows[classes == each].mean(axis=0) for each in range(count)])  # [K, H]
    spectrum = Spectrum.of((rows - means[classes]) / np.sqrt(len(rows)))
    variances = spectrum.values**2  # of the covariance within the classes
    unit = float(variances.sum()) / rows.shape[1]
    seen = spectrum.right @ means.T  # [R, K]

    # The inverse of (1 - s) C + s u I, where C has these variances along the right vectors.
    for strength in strengths:
        base = strength * unit
        along = (1.0 - strength) * variances
        rest = (along / (along + base))[:, None] * seen
        weights = (means.T - spectrum.right.T @ rest) / base  # [H, K]
        bias = np.log(sizes / sizes.sum()) - 0.5 * (means.T * weights).sum(axis=0)
        yield Linear(weights, bias)


Path = Callable[[Array, Classes, int, Sequence[float]], Iterator[Linear]]
KINDS: Mapping[str, tuple[Path, Sequence[float]]] = {
    "ridge": (ridge, tuple(10.0**power for power in range(-2, 5))),
    "lda": (lda, (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)),
}
"""The heads by name, each with the strengths that are tried."""


def log_probabilities(scores: Array, scale: float = 1.0) -> Array:
    """The logarithm of the softmax of ``scale`` times the scores: [n, K]."""
    scaled = scale * (scores - scores.max(axis=1, keepdims=True))
    found: Array = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
    return found
