"""Heads against scikit-learn's Ridge and LinearDiscriminantAnalysis."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from core_learn import TrainingDataError
from core_learn.heads import KINDS, Array, Classes, lda, log_probabilities, ridge

SHAPES = [(16, 64), (60, 12), (9, 200)]  # fewer rows than features, and more


def made(rows: int, features: int, count: int = 3) -> tuple[Array, Classes]:
    """Rows of unequal classes, with features of unequal size, off the origin."""
    random = np.random.default_rng(rows)
    classes = np.minimum(np.arange(rows) % (count + 1), count - 1)
    means = random.normal(size=(count, features))
    sizes = np.geomspace(0.1, 30.0, features)
    return (means[classes] + random.normal(size=(rows, features)) + 5.0) * sizes, classes


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_ridge_is_scikit_learns(shape: tuple[int, int]) -> None:
    rows, classes = made(*shape)
    strengths = KINDS["ridge"][1]
    unit = ((rows - rows.mean(axis=0)) ** 2).sum() / rows.shape[1]
    for strength, head in zip(strengths, ridge(rows, classes, 3, strengths), strict=True):
        theirs = Ridge(alpha=strength * unit, solver="svd").fit(rows, np.eye(3)[classes])
        np.testing.assert_allclose(head.weights, theirs.coef_.T, rtol=0, atol=1e-6)
        np.testing.assert_allclose(head.scores(rows), theirs.predict(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lda_is_scikit_learns(shape: tuple[int, int]) -> None:
    rows, classes = made(*shape)
    strengths = KINDS["lda"][1]
    for strength, head in zip(strengths, lda(rows, classes, 3, strengths), strict=True):
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=strength).fit(rows, classes)
        wanted = theirs.decision_function(rows)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(head.scores(rows) / scale, wanted / scale, rtol=0, atol=1e-6)
        found = np.exp(log_probabilities(head.scores(rows)))
        np.testing.assert_allclose(found, theirs.predict_proba(rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_alike_are_refused(kind: str) -> None:
    path, strengths = KINDS[kind]
    with pytest.raises(TrainingDataError, match="same features"):
        list(path(np.ones((4, 5)), np.array([0, 1, 0, 1]), 2, strengths))


def test_probabilities_sum_to_one_however_large_the_scores() -> None:
    found = np.exp(log_probabilities(np.array([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]]), 50.0))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found[1], 1 / 3)
