"""`LogProbFeatures`: a model's log-probabilities of labels, as features for any classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

import core_tasks
from core.options import LABEL_SENTENCE
from core.secret import hidden
from core_sklearn.estimating import TextEstimator
from core_sklearn.logprobs import Array, label_logprobs


class LogProbFeatures(TransformerMixin, TextEstimator):  # type: ignore[misc]
    """A transformer from texts to the log-probabilities of ``labels`` after each: [n, K].

    They are joint and over the model's entire vocabulary, so that they also show how likely any of
    the labels is. ``labels`` need not be classes: any words that the model may generate about a
    text are informative. With an encoder they are the logarithms of the labels' probabilities.
    ``model``, ``template``, ``words`` and ``label_sentence`` are as in `LabelClassifier`.
    """

    def __init__(
        self,
        model: Any,
        template: str = "{text}",
        labels: Sequence[str] = (),
        *,
        words: Mapping[str, Sequence[str]] | None = None,
        label_prefix: str = " ",
        label_sentence: str = LABEL_SENTENCE,
        backend: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.template = template
        self.labels = labels
        self.words = words
        self.label_prefix = label_prefix
        self.label_sentence = label_sentence
        self.backend = backend
        self.options = hidden(options)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the texts and the labels; nothing is learned. Raises their errors."""
        self._texts(X, reset=True)
        words = {label: tuple(synonyms) for label, synonyms in (self.words or {}).items()}
        self.task_ = core_tasks.Task(
            self.template,
            tuple(self.labels),
            words=words,
            label_prefix=self.label_prefix,
            label_sentence=self.label_sentence,
        )
        return self

    def transform(self, X: Any) -> Array:
        """Return the log-probabilities of the labels after each text: [n, K].

        Raises the error of the first text that the model cannot read.
        """
        check_is_fitted(self, "task_")
        return label_logprobs(self._model(), self.task_, self._texts(X))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the labels."""
        check_is_fitted(self, "task_")
        return np.array(self.task_.labels, dtype=object)
