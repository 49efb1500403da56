"""`LogProbFeatures`: what a model says of labels, as features for any classifier behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

import core
from core.secret import hidden
from core_sklearn.estimating import TextEstimator
from core_sklearn.logprobs import Array, said


class LogProbFeatures(TransformerMixin, TextEstimator):  # type: ignore[misc]
    """Makes of each text the log-probabilities of ``labels`` behind it: [n, K].

    They are joint and over the model's whole vocabulary, so that a label that is likelier than
    another still says how likely any of them is. ``labels`` need be no classes: any words that the
    model may say of a text tell something. ``model``, ``template`` and ``words`` are as in
    `LabelClassifier`.
    """

    def __init__(
        self,
        model: Any,
        template: str = "{text}",
        labels: Sequence[str] = (),
        *,
        words: Mapping[str, Sequence[str]] | None = None,
        label_prefix: str = " ",
        backend: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.template = template
        self.labels = labels
        self.words = words
        self.label_prefix = label_prefix
        self.backend = backend
        self.options = hidden(options)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn nothing: look at the texts and the labels. Raises what is wrong with them."""
        self._texts(X, reset=True)
        words = {label: tuple(each) for label, each in (self.words or {}).items()}
        self.task_ = core.Task(
            self.template, tuple(self.labels), words=words, label_prefix=self.label_prefix
        )
        return self

    def transform(self, X: Any) -> Array:
        """The log-probabilities of the labels behind each text: [n, K].

        Raises the error of the first text that the model cannot read.
        """
        check_is_fitted(self, "task_")
        return said(self._model(), self.task_, self._texts(X))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The labels."""
        check_is_fitted(self, "task_")
        return np.array(self.task_.labels, dtype=object)
